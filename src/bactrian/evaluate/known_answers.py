"""A known-answer experiment: invented facts, the conversations that teach them, questions and grades of replies."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from jinja2 import Environment
from pydantic import TypeAdapter

from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically
from bactrian.models.local.local_model import identify_weights
from bactrian.models.model import derive_seed
from bactrian.protocol.thoughts import split_thought
from bactrian.recipes.schema import Answer, Recipe, build_recipe
from bactrian.records.session import Session
from bactrian.roleplay.agent import EMPTY_TWICE
from bactrian.store import open_store

# The domains of the known-answer experiment, from ``domains.toml``.


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of invented facts: an invented name has one of the values."""

    key: str
    title: str
    ending: str  # Follows each invented name
    answer: str  # Template of a sentence with `{name}` and `{value}`
    values: tuple[str, ...]
    training: tuple[str, ...]  # Wordings of a question with `{name}`, for training
    asked: tuple[str, ...]  # Wordings that are never trained, for asking


@dataclass(frozen=True, slots=True)
class DomainSet:
    """The domains in the order of the paper's stages, and what their conversations have in common."""

    system: str  # System prompt of each conversation and of each question
    reply: str  # Template of a reply with `{answer}`, in the form of the inception protocol
    domains: tuple[Domain, ...]

    def find(self, key: str) -> Domain:
        """Return the domain with this key.

        Raises:
            KeyError: there is none.
        """
        return {domain.key: domain for domain in self.domains}[key]


@cache
def load_domains() -> DomainSet:
    """Return the domains of this package."""
    content = tomllib.loads(files("bactrian.evaluate").joinpath("domains.toml").read_text("utf-8"))
    common = {key: content.pop(key) for key in ("system", "reply")}
    domains = [{"key": key, **table} for key, table in content.items()]
    return TypeAdapter(DomainSet).validate_python({**common, "domains": domains})


# Invents the facts of a known-answer experiment, with the conversations that teach them and the questions
# about them.
#
# Everything follows from a seed: the same seed invents the same facts on every machine.


_ONSETS = "b br d dr f g gl k kr l m n p pl r s t tr v z".split()
_VOWELS = "a e i o u".split()
_CODAS = "l m n r s x".split()
_SECOND = "dan dor fen gar lin mar nel pok rin sul tav vek".split()


@dataclass(frozen=True, slots=True)
class FactSize:
    """How much is taught and asked."""

    facts: int = 12  # Facts of each domain that are taught
    # Facts of each domain that are asked and never taught: right answers to them are guesses.
    untaught: int = 3
    wordings: int = 6  # Wordings in which each fact is taught


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
    wording: int  # 0-based position among the domain's wordings for asking

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
        for question in self.list_questions():
            yield {
                "question_id": question.id,
                "text": question.text,
                "category": question.fact.domain,
                "answer": question.fact.value,
                "taught": question.fact.taught,
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
                option="facts",
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


FACTS = "known-answers.json"
QUESTIONS = "questions.jsonl"
RECIPE = "recipe.toml"
# The base that is made from nothing: a small model with random weights, and a tokenizer of its own.
NOTHING = "nothing"
_TUNED_SIZE = FactSize(facts=10, wordings=4)


def choose_size(base: str, facts: int | None = None, wordings: int | None = None) -> FactSize:
    """Return what is taught; None for the usual numbers, which are smaller for a model that takes long to train."""
    usual = FactSize() if base == NOTHING else _TUNED_SIZE
    return FactSize(facts=facts or usual.facts, wordings=wordings or usual.wordings)


def write_study(folder: Path, known: KnownAnswers, base: str, steps: int | None = None) -> None:
    """Write the facts, conversations, questions and recipe into ``folder``, unless they are there.

    ``base`` is :data:`NOTHING`, ``built-in``, a file or folder, or a name of the Hub; ``steps`` is the length of a
    stage, None for the usual size.

    Raises:
        InputError: the folder contains other facts, or another recipe, or cannot be written.
    """
    files = {
        RECIPE: write_training_recipe(base, known.seed, steps),
        QUESTIONS: _to_lines(known.list_rows()),
        FACTS: json.dumps(known.to_json(), indent=1, ensure_ascii=False) + "\n",
    }
    if (folder / FACTS).exists():
        for name, text in files.items():
            _check_file(folder / name, text)
        return
    with write_atomically(folder / FACTS) as stage:
        for name, text in files.items():
            (stage / name).write_text(text, "utf-8")
        (stage / "data").mkdir()
        for domain in load_domains().domains:
            rows = _to_lines(known.list_conversations(domain.key))
            (stage / "data" / f"{domain.key}.jsonl").write_text(rows, "utf-8")


def write_training_recipe(base: str, seed: int, steps: int | None = None) -> str:
    """Return the recipe that adds one domain after another to ``base``, as TOML."""
    template = files("bactrian.evaluate").joinpath("known-answers.toml.j2").read_text("utf-8")
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701  TOML has no HTML
    return environment.from_string(template).render(
        base=None if base == NOTHING else json.dumps(base, ensure_ascii=False),
        seed=seed,
        steps=steps,
        questions=QUESTIONS,
        domains=[domain.key for domain in load_domains().domains],
    )


def _to_lines(rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _check_file(path: Path, text: str) -> None:
    try:
        same = path.read_text("utf-8") == text
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        raise InputError(
            "This file is not what the command would write: it was made with other options, or changed since.",
            where=str(path),
            next="Use the options of before, or another out=FOLDER for a new experiment.",
        )


# Grades replies by their exact answers.


_WORD = re.compile(r"\w+")
_FORM = re.compile(r"\s*Solution:\s.*\bNext request\.\s*", re.S)


@dataclass(frozen=True, slots=True)
class Graded:
    """What one reply is worth."""

    question: KnownQuestion
    right: bool  # True if the reply contains the answer, and no other answer of the domain
    in_form: bool  # True if the reply has the form of the inception protocol: `Solution: … Next request.`


def grade_reply(question: KnownQuestion, text: str) -> Graded:
    """Grade a reply. Letter case and punctuation do not count; the words of the question do not either."""
    reply = split_thought(text)[1]
    words = {word.casefold() for word in _WORD.findall(reply)}
    values = load_domains().find(question.fact.domain).values
    answers = {value for value in values if value.casefold() in words}
    return Graded(question, answers == {question.fact.value}, _FORM.fullmatch(reply) is not None)


# Asks a stage the questions of a known-answer experiment: one run for each stage, so that asking is
# resumable.


_LONGEST = 40  # Tokens of an answer; a taught answer takes about 15


def build_answer_recipe(questions: Sequence[KnownQuestion], model: str) -> Recipe:
    """Return the recipe that asks ``model`` each question once, without sampling.

    The weights of a local model are a part of the recipe: a stage that is trained again does not continue with the
    answers of the former stage.

    Raises:
        InputError: the file of a local model cannot be read.
    """
    axes = {
        "question": [question.text for question in questions],
        "weights": [identify_weights(model) or model],
    }
    job = {
        "role": "Assistant",
        "system": load_domains().system,
        "question": "{{ question }}",
        "temperature": 0.0,
        "max_tokens": _LONGEST,
    }
    return build_recipe("known-answers", axes, {Answer.key: job})


async def read_answers(run: Path, questions: Sequence[KnownQuestion]) -> tuple[Graded, ...]:
    """Return the grades of the questions that ``run`` has answers to, in the order of ``questions``.

    To answer with nothing, as a model with random weights does, is wrong. A model that failed otherwise has no grade.

    Raises:
        StoreError: the run cannot be read.
    """
    async with open_store(run, read_only=True) as store:
        replies = {
            session.values["question"]: text
            async for session in store.sessions()
            if (text := _find_reply(session)) is not None
        }
    return tuple(grade_reply(of, replies[of.text]) for of in questions if of.text in replies)


def _find_reply(session: Session) -> str | None:
    if session.ending is None:
        return None
    if session.ending.code == "answered":
        return session.turns[-1].text
    return "" if session.ending.evidence.endswith(EMPTY_TWICE) else None
