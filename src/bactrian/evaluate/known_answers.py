"""What the stages of a training know: invented facts that they were taught, and judged pairs of stages.

The known-answer experiment has facts, the conversations that teach them, questions, and grades of replies.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from jinja2 import Environment
from pydantic import TypeAdapter

from bactrian.errors import InputError
from bactrian.evaluate.comparison import (
    ComparedRuns,
    Json,
    build_comparison_report,
    estimate_strengths,
    load_paper,
)
from bactrian.evaluate.comparison_jobs import Solutions, build_solution_recipe
from bactrian.evaluate.verdicts import JudgedTask, read_judged_tasks
from bactrian.files.atomic import write_atomically
from bactrian.models.local.local_model import identify_weights
from bactrian.models.model import derive_seed
from bactrian.models.open import ModelOptions, open_model
from bactrian.protocol.thoughts import split_thought
from bactrian.recipes.schema import Answer, Recipe, build_recipe
from bactrian.records.session import Session
from bactrian.roleplay.agent import EMPTY_TWICE
from bactrian.stats.clusters import estimate_ratio
from bactrian.stats.intervals import find_mean_interval
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


# The comparison that is planned, the matrix of domains, and the report in the layout of table 2.


GAIN = 0.5  # Least gain, at its own stage, of a domain that appears
MARGIN = 0.25  # A domain is absent while the upper end of its interval is at most guessing plus this


@dataclass(frozen=True, slots=True)
class StageAnswers:
    """The graded answers of one stage in one seed."""

    seed: int
    stage: int  # 0 is the base model
    graded: tuple[Graded, ...]


def compute_matrix(stages: Sequence[str], answers: Iterable[StageAnswers]) -> Json:
    """Return what each of ``stages`` knows; the first is the base model, and domain k is added at stage k.

    The stages of a seed answer the same questions. A seed with fewer stages counts where it has answers.
    A claim on a domain is that it appears at its own stage and not before.
    """
    grades = [(answer.seed, answer.stage, grade) for answer in answers for grade in answer.graded]
    # By stage and domain; the empty domain is that of the facts that were not taught.
    cells: defaultdict[tuple[int, str], list[tuple[int, Graded]]] = defaultdict(list)
    for seed, stage, grade in grades:
        fact = grade.question.fact
        cells[stage, fact.domain if fact.taught else ""].append((seed, grade))
    domains = load_domains().domains
    keys = [domain.key for domain in domains]
    rows: list[Json] = [
        {
            "stage": name,
            "domains": {key: _measure(cells[number, key]) for key in keys if cells[number, key]},
            "untaught": _measure(cells[number, ""]),
            "in_form": _measure(
                [of for key in (*keys, "") for of in cells[number, key]], lambda grade: grade.in_form
            ),
        }
        for number, name in enumerate(stages)
    ]
    claims: list[Json] = []
    for number, domain in enumerate(domains, 1):
        before = _measure([of for stage in range(number) for of in cells[stage, domain.key]])
        earlier = {(seed, of.question.id): of.right for seed, of in cells[number - 1, domain.key]}
        gained = [
            (seed, of.question.fact.id, float(of.right) - earlier[seed, of.question.id])
            for seed, of in cells[number, domain.key]
            if (seed, of.question.id) in earlier
        ]
        if before is None or not gained:
            continue
        gain, guessing = _summarize(gained, is_share=False), 1 / len(domain.values)
        appears = gain["low"] is not None and gain["value"] >= GAIN and gain["low"] > 0
        is_absent = before["high"] is not None and before["high"] <= guessing + MARGIN
        claims.append(
            {
                "domain": domain.key,
                "stage": number,
                "before": before,
                "gain": gain,
                "guessing": guessing,
                "appears": appears,
                "absent_before": is_absent,
                "holds": appears and is_absent,
            }
        )
    return {
        "stages": rows,
        "seeds": sorted({seed for seed, _, _ in grades}),
        "claims": claims,
        "holds": bool(claims) and all(claim["holds"] for claim in claims),
    }


def _measure(
    graded: Sequence[tuple[int, Graded]], worth: Callable[[Graded], bool] = lambda grade: grade.right
) -> Json | None:
    """Return the share of these answers, each with its seed, that are right or ``worth`` something; None for none."""
    values = [(seed, grade.question.fact.id, float(worth(grade))) for seed, grade in graded]
    return _summarize(values) if values else None


def _summarize(values: Sequence[tuple[int, str, float]], *, is_share: bool = True) -> Json:
    """Return the mean of ``values`` (seed, fact, value) with two intervals, both of 95 %.

    ``low`` and ``high`` are those of other facts: over facts, with all wordings of a fact together.
    The other intervals are those of other seeds (Student's t), each with its own facts and training; None for one seed.
    """
    facts: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    seeds: defaultdict[int, list[float]] = defaultdict(list)
    for seed, fact, value in values:
        facts[seed, fact].append(value)
        seeds[seed].append(value)
    share = estimate_ratio(
        ((sum(of), float(len(of))) for of in facts.values()), "share" if is_share else None, name="fact"
    )
    means = [fmean(of) for _, of in sorted(seeds.items())]
    low, high = find_mean_interval(means) or (None, None)
    return {
        **share.to_json(),
        "low_over_seeds": None if low is None else max(0.0 if is_share else -1.0, low),
        "high_over_seeds": None if high is None else min(1.0, high),
        "by_seed": means,
        "questions": len(values),
    }


# Plans the comparison of a training's stages: the pairs to compare, and the recipe of their answers.


_NAMED = re.compile(r"([a-z0-9][a-z0-9-]{0,63})=(.+)", re.S)


@dataclass(frozen=True, slots=True)
class StageModel:
    """A stage of a training, as a model that can be asked."""

    name: str
    model: str  # As `--model` names it
    label: str = ""  # What a report calls it, where its name does not tell

    @property
    def title(self) -> str:
        """What a report calls it."""
        return self.label or (
            "Base" if self.name == "base" else load_paper()["stages"].get(self.name, f"+ {self.name}")
        )


def read_stages(texts: Sequence[str], options: ModelOptions) -> tuple[StageModel, ...]:
    """Return the stages that a user gives as ``MODEL`` or ``NAME=MODEL``, the base first.

    Stages without a name are called as those of the paper, in their order.

    Raises:
        InputError: there are fewer than two, two have the same name, or a name is not that of a model.
    """
    usual = list(load_paper()["stages"])
    stages: list[StageModel] = []
    for number, text in enumerate(texts):
        named = _NAMED.fullmatch(text)
        name = usual[number] if number < len(usual) else f"stage-{number}"
        stages.append(StageModel(named[1], named[2]) if named else StageModel(name, text))
    names = [stage.name for stage in stages]
    if len(names) < 2 or len(set(names)) < len(names):
        few = "One stage alone adds nothing." if names else "There is nothing to ask."
        problem = "Two stages have the same name." if len(names) > 1 else few
        raise InputError(
            problem,
            where="STAGES",
            next=f"Give the base and the stages after it, in order, as MODEL or NAME=MODEL; or known_answers=True. "
            f"Usual names: {', '.join(usual)}.",
        )
    for stage in stages:
        open_model(stage.model, options)
    return tuple(stages)


def pair_stages(stages: Sequence[StageModel]) -> list[tuple[str, str]]:
    """Return the pairs of table 2: each stage with the stage before, and the last with the base."""
    names = [stage.name for stage in stages]
    pairs = list(pairwise(names))
    return pairs if len(names) == 2 else [*pairs, (names[0], names[-1])]


def build_stage_recipe(
    stages: Sequence[StageModel], question_set: str, questions: Sequence[str], max_tokens: int | None
) -> Recipe:
    """Return the recipe in which each stage answers each question, in at most ``max_tokens`` tokens.

    Raises:
        InputError: the weights of a local model cannot be read.
    """
    hashes = {stage.name: identify_weights(stage.model) for stage in stages}
    spec = Solutions(
        ways=tuple(stage.name for stage in stages),
        titles={stage.name: stage.title for stage in stages},
        weights={name: weights for name, weights in hashes.items() if weights} or None,
        question_set=question_set,
        task_label="question",
        max_tokens=max_tokens,
    )
    return build_solution_recipe(questions, spec)


# The report of table 2: stages of a training beside each other, on several sets of questions.


async def build_stage_report(sets: Mapping[str, ComparedRuns]) -> Json:
    """Return the report on the runs of each set of questions, by the set's name.

    Raises:
        BactrianError: no verdict was given yet on a set.
        StoreError: a run cannot be read.
    """
    reports = {name: await build_comparison_report(of) for name, of in sets.items()}
    titles: Mapping[str, str] = next(iter(reports.values()))["titles"]
    # The judged questions of all sets together, by judge and pair. A question keeps the name of its set.
    pooled: dict[str, dict[tuple[str, str], list[JudgedTask]]] = {}
    for name, runs in sets.items():
        for judge, verdicts in runs.verdicts.items():
            for pair, tasks in (await read_judged_tasks(runs.solutions, *verdicts)).items():
                together = pooled.setdefault(judge, {}).setdefault(pair, [])
                together.extend(replace(task, task=f"{name} {task.task}") for task in tasks)
    return {
        "rows": [
            _describe_row(name, comparison, titles)
            for name, report in reports.items()
            for comparison in report["comparisons"]
        ],
        "titles": titles,
        "strengths": estimate_strengths(pooled),
        "sets": reports,
        "warnings": [f"{name}: {warning}" for name, of in reports.items() for warning in of["warnings"]],
    }


def _describe_row(questions: str, of: Json, titles: Mapping[str, str]) -> Json:
    """Return one row of table 2: counts of questions, with the paper's where it has the same pair."""
    rate, counts = of["shares"]["win_rate"], of["counts"]
    paper = next(
        (row["sets"].get(questions) for row in load_paper()["pairs"] if row["pair"] == of["pair"]), None
    )
    # The rate is that of the second stage: its ends are swapped.
    second_rate = {
        key: None if rate[end] is None else 1 - rate[end]
        for key, end in (("value", "value"), ("low", "high"), ("high", "low"))
    }
    return {
        "questions": questions,
        "judge": of["judge"],
        "first": titles[of["pair"][0]],
        "second": titles[of["pair"][1]],
        "draw": counts["draw"],
        "first_wins": counts["win"],
        "second_wins": counts["loss"],
        "unreadable": counts["unreadable"],
        "draws": of["draws"],
        "verdict": of["verdict"],
        "second_rate": second_rate,
        "paper": paper and dict(zip(("draw", "first_wins", "second_wins"), paper, strict=True)),
    }
