"""Rejected proposals of a run become data."""

from __future__ import annotations

from pathlib import Path

from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.records.text import Text
from bactrian.records.turn import HUMAN, CriticSettings, Decision, Deliberation, Proposal, Usage
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.start import persist_events
from bactrian.store import open_store
from tests.helpers.exports import handed, lines
from tests.roleplay.test_critic import ASKS, SOLVES, critic_scene


async def made_with_a_critic(path: Path) -> Path:
    model = Scripted(
        {
            "user": [[*ASKS[:2], "Instruction: Mail tea@secret-leaf.io.\nInput: None"], DONE],
            "assistant": [["", *SOLVES[:2]]],
            "critic": [
                ["Hm.", "Choice: 2\nIt names a tea, as tea@secret-leaf.io said."],
                ["All", "are good"],
                "Choice: 1\nx",
            ],
        }
    )
    scene = critic_scene(model, CriticSettings("Professor"))
    async with open_store(path) as store:
        await store.begin(scene.session)
        async for _ in persist_events(play_session(scene), scene.session.id, store):
            pass
    return path


async def test_each_readable_choice_gives_a_pair_with_every_rejected_proposal(tmp_path: Path) -> None:
    run = await made_with_a_critic(tmp_path / "tea.db")
    await handed(run, "preference", tmp_path / "pairs.jsonl")
    rows = lines(tmp_path / "pairs.jsonl")
    assert [row["turn"] for row in rows] == [1, 1], "nothing was chosen readably at the others"
    assert {row["chosen"][0]["content"] for row in rows} == {ASKS[1]}
    assert rows[0]["rejected"][0]["content"] == ASKS[0]
    assert rows[0]["chooser"] == "Professor"
    assert rows[0]["reason"].startswith("It names a tea")


async def test_rejected_proposals_are_redacted_like_the_rest(tmp_path: Path) -> None:
    run = await made_with_a_critic(tmp_path / "tea.db")
    await handed(run, "preference", tmp_path / "pairs.jsonl", redact=True)
    text = (tmp_path / "pairs.jsonl").read_text()
    assert "secret-leaf" not in text
    assert "<EMAIL>" in text


def choices_of(model: str, feedback: str = "Say how much.") -> list[tuple[str, int]]:
    """Who chose in a round of two proposals and what, where ``model`` is stored with the first place."""
    offered = [
        Proposal(1, 1, place, "user", Text(f"Name {place}."), Usage(), 1, "one", "stop") for place in (1, 2)
    ]
    verdict = Decision(1, 1, 1, "user", "Critic", Text("…"), 1, feedback=feedback, model=model)
    return [(choice.chooser, choice.index) for choice in Deliberation(tuple(offered), (verdict,)).choices()]


def test_feedback_of_a_model_comes_with_its_choice_and_that_of_a_person_replaces_it() -> None:
    assert choices_of("one") == [("Critic", 0)]
    assert choices_of(HUMAN, "") == [(HUMAN, 0)], "a person who takes the critic's place in the browser"
