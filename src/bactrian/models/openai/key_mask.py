"""Takes the key out of what an endpoint sends: some servers send back what they were sent."""

from __future__ import annotations

import base64
import json
import re
from binascii import Error
from collections.abc import Callable
from typing import Any, cast

_LONG = 16
"""Characters from which a secret is taken out of replies. A shorter one may be a word of them."""


class KeyMask:
    """Replaces a key by its last four characters, and the credentials of an address by an ellipsis."""

    def __init__(self, key: str, credentials: str = "") -> None:
        self._key = key
        self._word = f"…{key[-4:]}" if len(key) > 8 else "…"
        shown = {key: self._word} if key else {}
        for secret in _list_secrets(credentials):
            shown[secret] = "…"
        self._shown = {secret: word for secret, word in shown.items() if len(secret) >= _LONG}
        self._bytes = {_encode(secret): word.encode() for secret, word in self._shown.items()}
        self._escaped = {
            re.compile("".join(map(_match_char, secret)).encode()): word.encode()
            for secret, word in self._shown.items()
            if secret.isascii()
        }

    def hide(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        for secret, word in self._shown.items():
            text = text.replace(secret, word)
        return text

    def hide_bytes(self, body: bytes) -> bytes:
        """Return a body of JSON without the secrets, however their characters are escaped."""
        for secret, word in self._bytes.items():
            body = body.replace(secret, word)
        if b"\\u00" in body or b"\\/" in body:
            for pattern, word in self._escaped.items():
                body = pattern.sub(word, body)
        return body

    def hide_in_value(self, value: Any) -> Any:
        """Return JSON without the secrets in any of its texts; the same object if they are in none."""
        if isinstance(value, str):
            return self.hide(value)
        hidden: Any = value
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value)
            hidden = {self.hide(name): self.hide_in_value(one) for name, one in items.items()}
        elif isinstance(value, list):
            hidden = [self.hide_in_value(one) for one in cast("list[Any]", value)]
        return hidden if hidden != value else cast("Any", value)

    def hide_in_error(self, text: str) -> str:
        """Return an error's text without the secrets, and without a key of any length."""
        shown = self.hide(text)
        return shown.replace(self._key, self._word) if self._key and len(self._key) < _LONG else shown

    def hide_in_sample(self, sample: bytes) -> bytes:
        """Return what came instead of a reply without the secrets, and without a key of any length."""
        hidden = self.hide_bytes(sample)
        return (
            hidden.replace(_encode(self._key), self._word.encode())
            if self._key and len(self._key) < _LONG
            else hidden
        )

    def cover(self, on_text: Callable[[str], None], on_restart: Callable[[], None] | None) -> MaskedText:
        """Return a receiver of pieces of text that passes them on to ``on_text`` without the secrets."""
        return MaskedText(self, on_text, on_restart, tuple(self._shown))


class MaskedText:
    """Passes on a text that comes in pieces; what may be the beginning of a secret is held back."""

    def __init__(
        self,
        mask: KeyMask,
        on_text: Callable[[str], None],
        on_restart: Callable[[], None] | None,
        secrets: tuple[str, ...],
    ) -> None:
        self._mask = mask
        self._on_text = on_text
        self._on_restart = on_restart
        self._secrets = secrets
        self._held = ""

    def add(self, piece: str) -> None:
        """Take the next piece."""
        if not self._secrets:
            self._on_text(piece)
            return
        text = self._mask.hide(self._held + piece)
        begun = max((_find_begun(text, secret) for secret in self._secrets), default=0)
        self._held = text[len(text) - begun :]
        if passed := text[: len(text) - begun]:
            self._on_text(passed)

    def end(self) -> None:
        """Pass on what was held back, at the end of the text."""
        held, self._held = self._held, ""
        if held:
            self._on_text(held)

    def restart(self) -> None:
        """Forget what was held back: the text begins again."""
        self._held = ""
        if self._on_restart is not None:
            self._on_restart()


def write_masked(value: Any) -> bytes:
    """Write a masked reply instead of the raw bytes from which it was read."""
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


def _find_begun(text: str, secret: str) -> int:
    """Return how many of the last characters of ``text`` are the first ones of ``secret``."""
    for length in range(min(len(secret) - 1, len(text)), 0, -1):
        if text.endswith(secret[:length]):
            return length
    return 0


def _match_char(char: str) -> str:
    code = f"{ord(char):02x}"
    slash = r"|\\/" if char == "/" else ""
    return rf"(?:{re.escape(char)}|\\u00(?:{code}|{code.upper()}){slash})"


def _list_secrets(credentials: str) -> list[str]:
    """Return the encoded credentials of an address, and the password in them."""
    encoded = credentials.partition(" ")[2]
    if not encoded:
        return []
    try:
        password = base64.b64decode(encoded).decode(errors="replace").partition(":")[2]
    except (Error, ValueError):
        password = ""
    return [one for one in (encoded, password) if one]


def _encode(secret: str) -> bytes:
    return secret.encode(errors="surrogateescape")
