"""``bactrian sandbox serve``: the far side of a remote sandbox."""

from __future__ import annotations

from typing import Annotated

from bactrian.cli.options import declare_option
from bactrian.errors import InputError
from bactrian.sandbox.remote.server import provide_sandbox
from bactrian.sandbox.tiers import TIERS


def serve(
    tier: Annotated[
        str | None,
        declare_option("--tier", "bubblewrap or landlock. Default: the strongest that works here."),
    ] = None,
) -> None:
    """Serve one sandbox through standard input and standard output, for `--tier 'remote:ssh HOST …'`."""
    tiers = [one for one in TIERS if tier in (None, one.name)]
    if not tiers:
        raise InputError(
            f"{tier!r} is not a tier of this computer.",
            where="--tier",
            next=f"Use one of: {', '.join(one.name for one in TIERS)}.",
        )
    provide_sandbox(0, 1, tiers)
