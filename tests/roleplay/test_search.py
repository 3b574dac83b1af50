"""Beam search: several lines are kept alive, and the best one is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import ContextFull, InputError
from bactrian.models.model import Model, Reply, ReplyChoice, Request
from bactrian.protocol.markers import DONE
from bactrian.protocol.pack import load_pack
from bactrian.records.events import Chose, Ended, Event, Proposed, Spoke
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.turn import NOTHING_KNOWN, CriticSettings, Deliberation, Turn, Usage, read_search
from bactrian.roleplay.critic import ScoringCritic, SessionCritic, build_ranking_format, read_ranking
from bactrian.roleplay.endings import default_endings
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.proposals import BeamSearch
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import new_session
from bactrian.roleplay.start import persist_events
from bactrian.roleplay.turns import Scene
from bactrian.runs.spending import read_spending
from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.exports import handed, lines
from tests.helpers.scenes import Counting, setup

PACK = load_pack("ai-society")


class Letters:
    """Continues a conversation by a letter: what was said before and a, b or c. The critic's answers are given."""

    name = "letters"

    def __init__(self, critic: Callable[[Request], str] = lambda _: "", ends: str = "") -> None:
        self._critic = critic
        self._ends = ends

    async def reply(self, request: Request) -> Reply:
        if request.agent == "critic":
            return Reply((ReplyChoice(Text(self._critic(request))),), Usage(7, 3), self.name)
        line = _letters([message.text for message in request.messages])
        letters = "abc"[request.attempt :][: request.n]
        choices = tuple(ReplyChoice(Text(self._say(request, line + letter))) for letter in letters)
        return Reply(choices, Usage(10, request.n), self.name)

    async def close(self) -> None: ...

    def _say(self, request: Request, line: str) -> str:
        if line == self._ends:
            return DONE
        head, tail = (
            ("Instruction: ", "\nInput: None")
            if request.agent == "user"
            else ("Solution: ", "\nNext request.")
        )
        return f"{head}line={line}.{tail}"


def _letters(texts: Sequence[str]) -> str:
    found = [text.partition("line=")[2].partition(".")[0] for text in texts if "line=" in text]
    return found[-1] if found else ""


def like(word: str) -> Callable[[Sequence[Turn]], float]:
    """Scores a line by how many letters at its beginning are those of ``word``."""

    def score(turns: Sequence[Turn]) -> float:
        line = _letters([turn.text for turn in turns])
        return float(sum(a == b for a, b in zip(line, word, strict=False)))

    return score


def scene(
    model: Model,
    *,
    width: int,
    depth: int,
    score: Callable[[Sequence[Turn]], float] | None = None,
    limit: int = 4,
    session: Session | None = None,
    known: Deliberation = NOTHING_KNOWN,
    unreadable: Any = "first",
) -> Scene:
    wish = CriticSettings("Judge", 3, unreadable=unreadable, width=width, depth=depth)
    asked = setup(critic=wish, models=dict.fromkeys(("user", "assistant", "critic"), "letters"))
    models = dict.fromkeys(asked.models, model)
    made = build_role_play(
        session or new_session(asked, PACK), PACK, models, rules=default_endings(limit), known=known
    )
    if score is None:
        return made
    search = BeamSearch(SessionCritic(ScoringCritic(score), wish, known))
    return replace(made, strategies=dict.fromkeys(made.agents, search))


async def events_of(made: Scene) -> list[Event]:
    return [event async for event in play_session(made)]


def spoken(events: Sequence[Event]) -> str:
    return _letters([event.turn.text for event in events if isinstance(event, Spoke)])


async def test_the_best_line_is_said_though_it_did_not_begin_best() -> None:
    def late(turns: Sequence[Turn]) -> float:
        line = _letters([turn.text for turn in turns])
        return {"a": 1.0, "b": 2.0, "ac": 9.0}.get(line, 0.0)

    narrow = await events_of(scene(Letters(), width=1, depth=2, score=late, limit=2))
    assert spoken(narrow)[0] == "b"
    wide = await events_of(scene(Letters(), width=2, depth=2, score=late, limit=2))
    assert spoken(wide) == "ac"


async def test_a_search_takes_no_more_than_it_was_said_to() -> None:
    model = Counting(Letters())
    events = await events_of(scene(model, width=2, depth=2, score=like("abca")))
    assert spoken(events) == "abca"
    proposed = [event.proposal for event in events if isinstance(event, Proposed)]
    assert len(proposed) == 2 * (1 + 2) * 3, "two searches, each of one line and then of two"
    assert len(model.requests) == 2 * (1 + 2)
    turns = [event.turn for event in events if isinstance(event, Spoke)]
    total = sum((turn.usage for turn in turns), Usage())
    assert total == sum((proposal.usage for proposal in proposed), Usage()), "losers are paid for, too"


async def test_the_tree_is_told_by_who_follows_whom() -> None:
    events = await events_of(scene(Letters(), width=2, depth=2, score=like("bc"), limit=2))
    second = [
        event.proposal for event in events if isinstance(event, Proposed) and event.proposal.number == 2
    ]
    verdict = next(event.verdict for event in events if isinstance(event, Chose))
    assert verdict.kept == (2, 1)
    assert [(proposal.place, proposal.parent) for proposal in second] == [
        (1, 2),
        (2, 2),
        (3, 2),
        (4, 1),
        (5, 1),
        (6, 1),
    ]
    assert spoken(events) == "bc"


async def test_a_line_that_has_ended_competes_and_is_not_continued() -> None:
    events = await events_of(
        scene(Letters(ends="a"), width=2, depth=2, score=lambda turns: float(turns[-1].text == DONE), limit=4)
    )
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert (ended.ending.code, ended.ending.turn) == ("task_done", 1)
    parents = {
        event.proposal.parent
        for event in events
        if isinstance(event, Proposed) and event.proposal.number == 2
    }
    assert parents == {2}, "nobody answers the done token"


def best(*places: int) -> str:
    return f"Ranking: {', '.join(map(str, places))}\nThe first is shorter."


async def test_a_critic_ranks_whole_lines() -> None:
    seen: list[str] = []

    def critic(request: Request) -> str:
        seen.append(request.messages[1].text)
        return best(3, 1) if request.replay_index == 0 else best(4)

    events = await events_of(scene(Letters(critic), width=2, depth=2, limit=2))
    assert spoken(events) == "aa", "the fourth line follows the one that was ranked second"
    assert "Way 3:\nTrader:\nInstruction: line=c." in seen[0]
    assert "the numbers of the 2 best ways" in seen[0]
    assert "Way 4:\nTrader:\nInstruction: line=a.\nInput: None\n\nProgrammer:\nSolution: line=aa." in seen[1]


async def test_a_ranking_that_cannot_be_read_keeps_the_first_lines_or_fails() -> None:
    model = Letters(lambda _: "They are all fine.")
    events = await events_of(scene(model, width=2, depth=2, limit=2))
    assert spoken(events) == "aa"
    assert [event.verdict.problem != "" for event in events if isinstance(event, Chose)] == [True] * 4
    failed = await events_of(scene(model, width=2, depth=2, limit=2, unreadable="fail"))
    assert isinstance(failed[-1], Ended)
    assert failed[-1].ending.code == "failed"


class Narrow(Letters):
    """Has no room for what follows a line."""

    async def reply(self, request: Request) -> Reply:
        if any("line=a." in message.text for message in request.messages):
            raise ContextFull("It is full.")
        return await super().reply(request)


async def test_a_line_without_room_is_not_continued_and_the_others_are() -> None:
    events = await events_of(scene(Narrow(), width=2, depth=2, score=like("bb"), limit=2))
    assert spoken(events) == "bb"
    events = await events_of(scene(Narrow(), width=2, depth=2, score=like("aa"), limit=2))
    assert isinstance(events[-1], Ended)
    assert (events[-1].ending.code, spoken(events)) == ("token_limit", "a")


@pytest.mark.slow
async def test_a_search_that_stopped_anywhere_goes_on_and_pays_for_nothing_again(tmp_path: Path) -> None:
    def critic(request: Request) -> str:
        return best(3, 1) if (request.replay_index or 0) % 2 == 0 else best(5)

    def steps(events: Sequence[Event]) -> list[Event]:
        return [event for event in events if isinstance(event, Proposed | Chose | Spoke)]

    whole = await events_of(scene(Letters(critic), width=2, depth=2))
    for stop in range(1, len(steps(whole)) + 1):
        async with open_store(tmp_path / f"{stop}.db") as store:
            first = scene(Letters(critic), width=2, depth=2)
            await store.begin(first.session)
            heard = 0
            async for event in persist_events(play_session(first), first.session.id, store):
                heard += isinstance(event, Proposed | Chose | Spoke)
                if heard == stop:
                    break
        async with open_store(tmp_path / f"{stop}.db") as store:
            session = await store.begin(first.session)
            known = await store.deliberation(session.id, after=len(session.turns) // 2 * 2)
            model = Counting(Letters(critic))
            again = scene(model, width=2, depth=2, session=session, known=known)
            async for _ in persist_events(play_session(again), session.id, store):
                pass
            stored = await store.session(session.id)
            tree = await store.deliberation(session.id)
            spent = (await read_spending(store)).agents
        assert stored is not None
        assert [turn.text for turn in stored.turns] == [e.turn.text for e in whole if isinstance(e, Spoke)]
        assert len(tree.proposals) == len([event for event in whole if isinstance(event, Proposed)])
        assert len(tree.verdicts) == len([event for event in whole if isinstance(event, Chose)])
        paid = [step for step in steps(whole)[:stop] if isinstance(step, Proposed | Chose)]
        asked = [step for step in steps(whole) if isinstance(step, Proposed | Chose)]
        assert sum(request.n for request in model.requests) == len(asked) - len(paid)
        assert sum(usage.completion for usage in spent.values()) == stored.usage.completion


async def test_preferences_of_a_search_compare_what_could_follow_the_same_words(tmp_path: Path) -> None:
    def critic(request: Request) -> str:
        return best(3, 1) if request.replay_index == 0 else best(5)

    made = scene(Letters(critic), width=2, depth=2, limit=2)
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(made.session)
        async for _ in persist_events(play_session(made), made.session.id, store):
            pass
    await handed(tmp_path / "run.db", "preference", tmp_path / "pairs.jsonl")
    rows = lines(tmp_path / "pairs.jsonl")
    pairs = [
        (row["turn"], _letters([row["chosen"][0]["content"]]), _letters([row["rejected"][0]["content"]]))
        for row in rows
    ]
    assert pairs == [(1, "a", "b"), (1, "a", "c"), (2, "ab", "aa"), (2, "ab", "ac")]


@pytest.mark.parametrize(
    ("text", "kept_places"),
    [
        ("Ranking: 3, 1", (3, 1)),
        ("**Ranking: 3 > 1 > 2**", (3, 1)),
        ("Ranking: 3", None),
        ("Ranking: 3, 3", None),
        ("Ranking: 4, 1", None),
        ("3, 1", None),
        ("I rank them. Ranking: 3, 1", None),
    ],
)
def test_a_ranking_names_as_many_as_are_wanted(text: str, kept_places: tuple[int, ...] | None) -> None:
    reading = read_ranking(f"{text}\nBecause.", [1, 2, 3], 2)
    assert reading.kept == (kept_places or ())
    assert bool(reading.problem) == (kept_places is None)


def test_a_constrained_ranking_is_the_same_text() -> None:
    form = build_ranking_format([1, 2, 3], 2)
    assert form.read('{"ranking": [3, 1], "reason": "Short."}') == "Ranking: 3, 1\nShort."


@pytest.mark.parametrize(
    "text", ["beam", "beam:0x1", "beam:2", "beam:2x", "dfs:2x2", "beam:100x1", "beam:-1x1"]
)
def test_what_is_no_search_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="beam:WIDTHxDEPTH"):
        read_search(text)


def test_a_person_is_not_asked_for_every_line() -> None:
    wish = CriticSettings("Judge", width=2, depth=2)
    asked = setup(critic=wish, models={"user": HUMAN, "assistant": "x", "critic": "x"})
    with pytest.raises(InputError, match="person"):
        new_session(asked, PACK)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--set", "critic.search=beam:2x2"), "--critic"),
        (("--set", "critic.search=beam:2", "--critic", "x"), "beam:WIDTHxDEPTH"),
        (("--set", "critic.search=beam:2x2", "--critic", "x", "--set", "critic.rounds=2"), "one round"),
        (("--set", "critic.search=beam:2x2", "--critic", "human"), "person"),
    ],
)
def test_a_search_that_cannot_be_made_gives_one_clear_error(
    tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    done = bactrian("play", "tea", *flags, cwd=tmp_path)
    assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
