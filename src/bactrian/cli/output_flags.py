"""The flags of ``bactrian play`` that say where a session goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bactrian.cli.options import declare_option
from bactrian.cli.view.watching import PlayKeeper
from bactrian.errors import InputError
from bactrian.models.wrappers.budget import UsageMeter


@dataclass(frozen=True, slots=True)
class OutputFlags:
    """Where a session goes, and what is shown of it."""

    run_file: Annotated[
        Path | None,
        declare_option(
            "--run", "Store the session here; the same command resumes it. Default: in your data folder."
        ),
    ] = None
    keep_: Annotated[
        bool,
        declare_option("--keep/--no-keep", "Keep a session without --run in your data folder."),
    ] = True
    out: Annotated[
        Path | None,
        declare_option("--out", "Also write the conversation to this file, as .md, .html or .json."),
    ] = None
    overwrite: Annotated[bool, declare_option("--overwrite", "Replace the file of --out.")] = False
    raw: Annotated[
        bool,
        declare_option("--raw", "Show each text as it came, with the protocol's words and without Markdown."),
    ] = False
    json: Annotated[bool, declare_option("--json", "Write events as JSON lines.")] = False

    def keep(self, meter: UsageMeter | None = None) -> PlayKeeper:
        """Return what keeps the session as the flags say; ``meter`` counts what it uses.

        Raises:
            InputError: the file of ``--out`` cannot be written.
        """
        if self.out is not None:
            _check_out(self.out, overwrite=self.overwrite)
        return PlayKeeper(
            self.run_file, keep=self.keep_, json=self.json, raw=self.raw, out=self.out, meter=meter
        )


def _check_out(out: Path, *, overwrite: bool) -> None:
    """Refuse a file that could not be written in the end: the conversation may be long and expensive."""
    if out.suffix not in (".md", ".html", ".json"):
        raise InputError(
            f"A conversation is not written as {out.suffix or 'a file without a suffix'}.",
            where=str(out),
            next="Name a file that ends in .md, .html or .json.",
        )
    if out.is_dir() or (out.exists() and not overwrite):
        raise InputError("It exists.", where=str(out), next="Name another file, or give --overwrite.")
    if not out.absolute().parent.is_dir():
        raise InputError(
            "Its folder does not exist.", where=str(out), next="Make the folder, or name another."
        )
