"""The file of a pack: read strictly, with the place of each fault."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import cast

from bactrian.errors import PromptError

LARGEST_PACK = 256 * 1024
"""Bytes a pack's file may have."""

_POSITION = re.compile(r" ?\(at line (\d+), column (\d+)\)")
_LOOKED_AT = 10
"""Lines that may be looked at for the place of a key; each costs a parse of what stands before it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a pack's file, and where it is from."""

    where: str
    text: str

    def table(self) -> dict[str, object]:
        """The file's content.

        Raises:
            PromptError: it is not valid TOML.
        """
        try:
            return tomllib.loads(self.text)
        except RecursionError as error:
            raise PromptError(
                "The prompt pack is nested too deeply.",
                where=self.where,
                next="A pack has texts in a table [templates] and nothing deeper.",
            ) from error
        except ValueError as error:  # TOMLDecodeError, or a number with too many digits
            position = _POSITION.search(str(error))
            raise PromptError(
                f"The prompt pack is not valid TOML: {_POSITION.sub('', str(error))}.",
                where=":".join((self.where, *(position.groups() if position else ()))),
                next="Correct the file; docs/prompts.md shows what one looks like.",
            ) from error

    def check_keys(
        self, data: Mapping[str, object], known: Collection[str], needed: Collection[str], kind: str
    ) -> None:
        """Refuse keys that a pack does not have, and the lack of those that it must have."""
        for key in data:
            if key not in known:
                raise self.error(
                    f"Unknown {kind} {key!r}.{did_you_mean(key, known)}",
                    key,
                    f"Known {kind}s: {', '.join(known)}.",
                )
        if missing := [key for key in needed if key not in data]:
            raise PromptError(
                f"The prompt pack lacks the {kind} {', '.join(map(repr, missing))}.",
                where=self.where,
                next=f"Needed {kind}s: {', '.join(needed)}.",
            )

    def subtable(self, data: Mapping[str, object], key: str) -> dict[str, object]:
        """The table under ``key``."""
        if not isinstance(data[key], dict):
            raise self.error(f"{key!r} is not a table.", key, f"Begin it with a line [{key}].")
        return cast("dict[str, object]", data[key])

    def string(self, data: Mapping[str, object], key: str) -> str:
        """The text under ``key``."""
        value = data[key]
        if not isinstance(value, str):
            raise self.error(f"{key!r} is not a text.", key, "Put it in quotes.")
        return value

    def error(self, what: str, key: str, next: str | None) -> PromptError:
        """An error at ``key``."""
        return PromptError(what, where=self._place(key), next=next)

    def _place(self, key: str) -> str:
        """``file:line:column`` of ``key``; the file alone where the key is written in some unusual way."""
        written = re.compile(rf"^[ \t]*\[?[ \t]*(\"|'|){re.escape(key)}\1[ \t]*[=\]]", re.MULTILINE)
        for match in islice(written.finditer(self.text), _LOOKED_AT):
            if _is_toml(self.text[: match.start()]):  # and so this line is not inside another text
                line = self.text.count("\n", 0, match.start()) + 1
                column = len(match[0]) - len(match[0].lstrip()) + 1
                return f"{self.where}:{line}:{column}"
        return self.where


def decoded(where: str, content: bytes) -> Source:
    """The source in ``content``.

    Raises:
        PromptError: it is too large, or not UTF-8.
    """
    if len(content) > LARGEST_PACK:
        raise PromptError(
            f"The prompt pack is larger than {LARGEST_PACK:,} bytes.",
            where=where,
            next="Check that this is the file you mean.",
        )
    try:
        return Source(where, content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PromptError(
            "The prompt pack is not UTF-8 text.", where=f"{where}:{line}", next="Save it as UTF-8."
        ) from error


def did_you_mean(word: str, known: Collection[str]) -> str:
    """A hint at the known word nearest to ``word``, to end a sentence with; empty if none is near."""
    near = get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
