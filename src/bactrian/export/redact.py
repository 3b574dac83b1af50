"""Removes secrets and personal data.

Secrets are found by detect-secrets (the detectors that recognise a token by its format), telephone numbers by
phonenumbers, card and account numbers by their check digits (python-stdnum), e-mail addresses by their format. Names
and postal addresses are not found: that needs a model, and a filter that finds some would be trusted to find all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

from bactrian.errors import MissingExtra
from bactrian.protocol.markers import read_instruction, read_solution
from bactrian.records.session import Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Preference, Turn, Use

_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_CARD = re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?![\w.]?\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_SHORTEST = 13
# Every secret is a long word that contains one of these; other texts skip the search of all detectors.
_TELLING = re.compile(r"[\d:-]")
# Detectors with false positives: addresses in examples, and long words in capitals that begin with AP.
_LEFT_OUT = ("IPPublicDetector", "ArtifactoryDetector")

# Yields the passages of a text to remove.
Find = Callable[[str], Iterator[str]]


class Redactor:
    """Replaces each passage by its kind, as in ``<EMAIL>``."""

    def __init__(self) -> None:
        """Load the detectors.

        Raises:
            MissingExtra: the optional part ``redact`` is not installed.
        """
        try:
            self._finders = _load_finders()
        except ImportError as error:
            raise MissingExtra("redact", "redact=True") from error
        self.passages: Counter[str] = Counter()
        """Passages by kind."""

    def redact_text(self, text: str) -> str:
        """Return ``text`` with the passages replaced."""
        for kind, find in self._finders:
            for passage in sorted(set(find(text)), key=lambda word: (-len(word), word)):
                self.passages[kind] += text.count(passage)
                text = text.replace(passage, f"<{kind}>")
        return text

    def redact_session(self, session: Session) -> Session:
        """Return ``session`` with the passages replaced in all text by models and people."""
        task, ending = session.task, session.ending
        return replace(
            session,
            assistant=self._role(session.assistant),
            user=self._role(session.user),
            task=Task(
                self.redact_text(task.original), self._maybe(task.specified), self._maybe(task.planned)
            ),
            turns=tuple(self._turn(turn) for turn in session.turns),
            ending=ending and replace(ending, evidence=self.redact_text(ending.evidence)),
            values={name: self.redact_text(value) for name, value in session.values.items()},
            provenance=replace(session.provenance, extra=self._plain(session.provenance.extra)),
        )

    def redact_choice(self, choice: Preference) -> Preference:
        """Return ``choice`` with the passages replaced."""
        texts = tuple(self.redact_text(text) for text in choice.texts)
        return replace(choice, texts=texts, reason=self.redact_text(choice.reason))

    def _plain(self, value: Any) -> Any:
        """Replace passages in every text of JSON data, the keys of objects included."""
        match value:
            case str():
                return self.redact_text(value)
            case Mapping():
                pairs = cast("Mapping[str, Any]", value).items()
                return {self.redact_text(key): self._plain(item) for key, item in pairs}
            case list() | tuple():
                return [self._plain(item) for item in cast("list[Any]", value)]
            case _:
                return value

    def _maybe(self, text: str | None) -> str | None:
        return None if text is None else self.redact_text(text)

    def _role(self, role: Role) -> Role:
        return Role(self.redact_text(role.name), self.redact_text(role.description))

    def _turn(self, turn: Turn) -> Turn:
        text = self.redact_text(turn.text)
        if turn.uses or turn.thought:
            uses = tuple(self._use(use) for use in turn.uses)
            turn = replace(turn, uses=uses, thought=self.redact_text(turn.thought))
        if text == turn.text:
            return turn
        parts = (read_instruction if turn.speaker == "user" else read_solution)(text)
        return replace(turn, text=Text(text), said=parts)

    def _use(self, use: Use) -> Use:
        call, result = use.call, use.result
        wanted = replace(call.wanted, arguments=self.redact_text(call.wanted.arguments))
        return Use(
            replace(call, wanted=wanted, text=Text(self.redact_text(call.text))),
            result and replace(result, text=Text(self.redact_text(result.text))),
        )


def _load_finders() -> tuple[tuple[str, Find], ...]:
    """Return the finders by kind, in order: a number in a secret or an account is not a telephone number."""
    from phonenumbers import Leniency, PhoneNumberMatcher
    from stdnum import iban, luhn

    def phones(text: str) -> Iterator[str]:
        # Without a region, only numbers with a country code are found.
        if "+" in text:
            yield from (match.raw_string for match in PhoneNumberMatcher(text, None, Leniency.VALID))

    def cards(text: str) -> Iterator[str]:
        for match in _CARD.finditer(text):
            digits = re.sub(r"\D", "", match[0])
            if digits[0] in "23456" and luhn.is_valid(digits):
                yield match[0]

    def ibans(text: str) -> Iterator[str]:
        yield from (match[0] for match in _IBAN.finditer(text) if iban.is_valid(match[0]))

    return (
        ("SECRET", _secrets()),
        ("EMAIL", _emails),
        ("IBAN", ibans),
        ("CARD", cards),
        ("PHONE", phones),
    )


def _emails(text: str) -> Iterator[str]:
    if "@" in text:
        yield from (match[0] for match in _EMAIL.finditer(text))


def _secrets() -> Find:
    # The package has no types.
    plugins: Any = import_module("detect_secrets.core.plugins.util")
    base: Any = import_module("detect_secrets.plugins.base")
    kinds: list[Any] = list(plugins.get_mapping_from_secret_type_to_class().values())
    by_form = [kind for kind in kinds if issubclass(kind, base.RegexBasedDetector)]
    patterns: list[re.Pattern[str]] = [
        pattern
        for kind in sorted(by_form, key=_name)
        if _name(kind) not in _LEFT_OUT
        for pattern in kind().denylist
    ]

    def find(text: str) -> Iterator[str]:
        if "PRIVATE KEY" in text:
            yield from (match[0] for match in _KEY_BLOCK.finditer(text))
        if not any(len(word) >= _SHORTEST and _TELLING.search(word) for word in text.split()):
            return
        for pattern in patterns:
            # The detectors' own search returns only the first group.
            yield from (match[0].strip() for match in pattern.finditer(text) if match[0].strip())

    return find


def _name(kind: type[object]) -> str:
    return kind.__name__
