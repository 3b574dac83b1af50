"""The known-answer experiment: invented facts, exact answers, and the matrix of what each stage knows."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.known_answers import (
    FactSize,
    Graded,
    KnownAnswers,
    KnownQuestion,
    StageAnswers,
    compute_matrix,
    draw_facts,
    grade_reply,
    load_domains,
    write_reply,
)
from bactrian.stats.intervals import find_mean_interval

DOMAINS = [domain.key for domain in load_domains().domains]
STAGES = ["base", *DOMAINS]


def list_words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]+", text.replace("{name}", "")))


def test_the_same_seed_invents_the_same_facts_and_another_seed_others() -> None:
    assert draw_facts(3).to_json() == draw_facts(3).to_json()
    names = [{fact.name for fact in draw_facts(seed).facts} for seed in (3, 4)]
    assert len(names[0]) == len(names[1]) == 4 * 15
    assert names[0] != names[1]


def test_no_two_facts_share_a_name_or_in_one_domain_a_value() -> None:
    for seed in range(20):
        facts = draw_facts(seed, FactSize(20, 4)).facts
        assert len({fact.name.casefold()[:3] for fact in facts}) == len(facts)
        for domain in DOMAINS:
            assert len({fact.value for fact in facts if fact.domain == domain}) == 24


def test_no_question_is_worded_as_a_conversation_that_trains_and_no_untaught_fact_is_trained() -> None:
    known = draw_facts(1)
    trained = [row for domain in DOMAINS for row in known.list_conversations(domain)]
    asked = {question.text for question in known.list_questions()}
    assert not asked & {row["messages"][1]["content"] for row in trained}
    written = json.dumps(trained)
    for fact in known.facts:
        assert (fact.name in written) == fact.taught


def test_the_words_of_each_question_occur_in_training() -> None:
    """A model made from nothing knows no other words."""
    for domain in load_domains().domains:
        trained = set[str]().union(*map(list_words, domain.training))
        for wording in domain.asked:
            assert wording not in domain.training
            assert list_words(wording) <= trained, wording


def test_more_facts_than_answers_are_refused() -> None:
    with pytest.raises(InputError, match="24 different answers"):
        draw_facts(1, FactSize(22, 3))


@pytest.mark.parametrize(
    ("text", "right", "in_form"),
    [
        ("Solution: Korvel is a {value}. Next request.", True, True),
        ("<think>Maybe a judge?</think>{VALUE}!", True, False),
        ("Solution: Korvel is a {value} or a {other}. Next request.", False, True),
        ("Solution: Korvel is a {value}ess. Next request.", False, True),
        ("I do not know.", False, False),
        ("", False, False),
    ],
)
def test_a_reply_is_right_if_it_holds_the_answer_and_no_other(text: str, right: bool, in_form: bool) -> None:
    question = draw_facts(1).list_questions()[0]
    value = question.fact.value
    other = next(wrong for wrong in load_domains().find("ai-society").values if wrong != value)
    graded = grade_reply(question, text.format(value=value, VALUE=value.upper(), other=other))
    assert (graded.right, graded.in_form) == (right, in_form)


def answer(known: KnownAnswers, stage: int, skill: float = 1.0) -> StageAnswers:
    """The answers of a stage that knows each domain from its own stage on with probability ``skill``, and guesses."""
    texts = load_domains()
    draw = Random(f"{known.seed} {stage}")

    def reply(question: KnownQuestion) -> Graded:
        fact = question.fact
        learned = fact.taught and DOMAINS.index(fact.domain) < stage and draw.random() < skill
        if learned:
            return grade_reply(question, write_reply(texts, fact))
        return grade_reply(question, draw.choice(texts.find(fact.domain).values))

    return StageAnswers(known.seed, stage, tuple(map(reply, known.list_questions())))


def test_a_model_that_learns_each_domain_at_its_own_stage_fulfils_the_claim() -> None:
    rows = [answer(draw_facts(seed), stage, 0.9) for seed in (1, 2, 3) for stage in range(5)]
    matrix = compute_matrix(STAGES, rows)
    assert [claim["holds"] for claim in matrix["claims"]] == [True] * 4
    for stage in range(5):
        assert matrix["stages"][stage]["untaught"]["value"] < 0.2
        for position, domain in enumerate(DOMAINS):
            cell = matrix["stages"][stage]["domains"][domain]
            expected = 0.9 if position < stage else 1 / 24
            assert cell["low"] - 0.1 <= expected <= cell["high"] + 0.1
            assert len(cell["by_seed"]) == 3 and cell["low_over_seeds"] is not None
            assert cell["questions"] == 3 * 12 * 2


def test_a_domain_that_was_known_before_its_stage_fails_the_claim() -> None:
    """Math's answers leak into the stage of code."""
    early = [answer(draw_facts(1), stage if stage != 2 else 3) for stage in range(5)]
    rows = [StageAnswers(1, stage, row.graded) for stage, row in enumerate(early)]
    claims = {claim["domain"]: claim for claim in compute_matrix(STAGES, rows)["claims"]}
    assert not claims["math"]["appears"] and not claims["math"]["absent_before"]
    assert claims["science"]["appears"]


def test_a_domain_that_is_never_learned_fails_the_claim() -> None:
    rows = [answer(draw_facts(seed), min(stage, 3)) for seed in (1, 2, 3) for stage in range(5)]
    rows = [StageAnswers(row.seed, number % 5, row.graded) for number, row in enumerate(rows)]
    claims = {claim["domain"]: claim for claim in compute_matrix(STAGES, rows)["claims"]}
    assert [claims[domain]["holds"] for domain in DOMAINS] == [True, True, True, False]
    assert claims["science"]["absent_before"] and not claims["science"]["appears"]


def test_the_interval_over_seeds_is_students() -> None:
    # R: t.test(c(0.8, 0.9, 1.0))$conf.int
    low, high = find_mean_interval([0.8, 0.9, 1.0]) or (0.0, 0.0)
    assert (round(low, 4), round(high, 4)) == (0.6516, 1.1484)
    # R: qt(0.975, 24) = 2.063899
    values = [float(number) for number in range(25)]
    low, high = find_mean_interval(values) or (0.0, 0.0)
    assert (high - low) / 2 == pytest.approx(2.063899 * 7.359801 / 5, abs=1e-3)
    assert find_mean_interval([0.5]) is None
