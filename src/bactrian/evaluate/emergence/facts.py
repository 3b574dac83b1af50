"""Invents the facts of a known-answer experiment, with the conversations that teach them and the questions about them.

Everything follows from a seed: the same seed invents the same facts on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from bactrian.errors import InputError
from bactrian.evaluate.emergence.domains import Domain, DomainSet, load_domains
from bactrian.models.seeds import derive_seed

_ONSETS = "b br d dr f g gl k kr l m n p pl r s t tr v z".split()
_VOWELS = "a e i o u".split()
_CODAS = "l m n r s x".split()
_SECOND = "dan dor fen gar lin mar nel pok rin sul tav vek".split()


@dataclass(frozen=True, slots=True)
class FactSize:
    """How much is taught and asked."""

    facts: int = 12
    """Facts of each domain that are taught."""
    untaught: int = 3
    """Facts of each domain that are asked and never taught: right answers to them are guesses."""
    wordings: int = 6
    """Wordings in which each fact is taught."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One invented fact."""

    id: str
    domain: str
    name: str
    value: str
    taught: bool


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """A question about a fact, in a wording that is never trained."""

    text: str
    fact: Fact
    wording: int
    """0-based position among the domain's wordings for asking."""

    @property
    def id(self) -> str:
        """Names the question: the fact and the wording."""
        return f"{self.fact.id}.{self.wording + 1}"


@dataclass(frozen=True, slots=True)
class KnownAnswers:
    """The facts of one seed."""

    seed: int
    size: FactSize
    facts: tuple[Fact, ...]

    def list_conversations(self, domain: str) -> Iterator[dict[str, Any]]:
        """Yield the conversations that teach the facts of ``domain``, as rows of a JSON-lines file of messages."""
        texts = load_domains()
        of = texts.find(domain)
        for fact in self.facts:
            if fact.domain == domain and fact.taught:
                for number, wording in enumerate(of.training[: self.size.wordings], start=1):
                    yield {
                        "id": f"{fact.id}-{number}",
                        "messages": [
                            {"role": "system", "content": texts.system},
                            {"role": "user", "content": wording.format(name=fact.name)},
                            {"role": "assistant", "content": write_reply(texts, fact)},
                        ],
                    }

    def list_questions(self) -> list[KnownQuestion]:
        """Return all questions, also those about facts that are not taught, domain by domain."""
        texts = load_domains()
        return [
            KnownQuestion(wording.format(name=fact.name), fact, number)
            for fact in self.facts
            for number, wording in enumerate(texts.find(fact.domain).asked)
        ]

    def list_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the questions as rows of a JSON-lines file."""
        for one in self.list_questions():
            yield {
                "question_id": one.id,
                "text": one.text,
                "category": one.fact.domain,
                "answer": one.fact.value,
                "taught": one.fact.taught,
            }

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON content."""
        return {
            "seed": self.seed,
            "size": asdict(self.size),
            "facts": [asdict(fact) for fact in self.facts],
        }


def draw_facts(seed: int, size: FactSize = FactSize()) -> KnownAnswers:
    """Return the facts of ``seed``: names that no other fact has, values that no other fact of the domain has.

    Raises:
        InputError: a domain has too few values or wordings for ``size``.
    """
    texts = load_domains()
    for domain in texts.domains:
        if size.facts + size.untaught > len(domain.values):
            raise InputError(
                f"{size.facts} facts and {size.untaught} that are never taught are too many: there are "
                f"{len(domain.values)} different answers in {domain.title}.",
                where="--facts",
                next="Take fewer.",
            )
    draw = Random(derive_seed(seed, "facts"))  # noqa: S311
    names = _draw_stems(draw, len(texts.domains) * (size.facts + size.untaught))
    facts = [fact for domain in texts.domains for fact in _invent(domain, size, names, draw)]
    return KnownAnswers(seed, size, tuple(facts))


def _invent(domain: Domain, size: FactSize, names: Iterator[str], draw: Random) -> Iterator[Fact]:
    values = draw.sample(domain.values, size.facts + size.untaught)
    for number, (value, name) in enumerate(zip(values, names, strict=False), start=1):
        written = name.capitalize() if not domain.ending or domain.ending == "ium" else name
        yield Fact(
            f"{domain.key}-{number:02}", domain.key, written + domain.ending, value, number <= size.facts
        )


def _draw_stems(draw: Random, count: int) -> Iterator[str]:
    """Return an iterator over ``count`` stems. No two begin alike, so that a small model can tell them apart."""
    firsts = [onset + vowel + coda for onset in _ONSETS for vowel in _VOWELS for coda in _CODAS]
    draw.shuffle(firsts)
    apart = {first[:3]: first for first in reversed(firsts)}
    return (first + draw.choice(_SECOND) for first in list(apart.values())[:count])


def write_reply(texts: DomainSet, fact: Fact) -> str:
    """Return the reply that gives the answer."""
    sentence = texts.find(fact.domain).answer.format(name=fact.name, value=fact.value)
    return texts.reply.format(answer=sentence)
