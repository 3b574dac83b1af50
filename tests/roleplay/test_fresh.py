"""The built-in model on an idea of one's own: what it sees, how it opens, and what is asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bactrian.api.arguments import OwnModel
from bactrian.api.conversation import SessionCollector
from bactrian.models.model import BUILT_IN_MODEL, Request
from bactrian.protocol.pack import load_pack
from bactrian.records.session import Role, Session
from bactrian.roleplay.response_formats import build_user_format
from bactrian.roleplay.role_play import run_role_play
from bactrian.roleplay.setup import SMALL_PACK, RolePlaySetup, new_session
from bactrian.roleplay.start import OpenSession

FIRST = "Instruction: List three good teas.\nInput: None"
TEAS = (
    "Solution: You can drink sencha, assam or rooibos.\n1. Sencha is green.\n2. Assam is black.\n"
    "3. Rooibos is red.\nNext request."
)
SECOND = "Instruction: Explain how to warm the pot.\nInput: None"
POT = (
    "Solution: First, boil half a litre of water.\n1. Pour it into the pot.\n2. Wait for a minute.\n"
    "3. Empty the pot.\nNext request."
)


def play(replies: Sequence[str], messages: int) -> tuple[Session, list[Request]]:
    """Play with a model that has the built-in model's traits and gives ``replies``, whoever is asked."""
    asked: list[Request] = []

    def answer(request: Request) -> str:
        asked.append(request)
        return replies[len(asked) - 1]

    model = OwnModel("small", answer, threaded=False, traits=BUILT_IN_MODEL)
    setup = RolePlaySetup(
        idea="Choose a tea",
        assistant=Role("Expert"),
        user=Role("Beginner"),
        models=dict.fromkeys(("user", "assistant"), "local"),
        specify=False,
        max_messages=messages,
        seed=1,
    )
    pack = load_pack(SMALL_PACK)

    async def run() -> Session:
        session = new_session(setup, pack)
        opened = OpenSession(session, {"user": model, "assistant": model}, {})
        events = await run_role_play(opened, pack, rules=setup.rules())
        return await SessionCollector().collect(events)

    return asyncio.run(run()), asked


def test_an_agent_sees_what_was_said_last_and_not_its_own_turns() -> None:
    _, asked = play([FIRST, TEAS, SECOND, POT], 4)
    assert [len(request.messages) for request in asked] == [2, 2, 2, 2]
    assert asked[3].messages[1].text == SECOND
    assert asked[2].messages[1].text.startswith(TEAS)
    assert asked[2].messages[1].text.endswith("Choose a tea?")


def test_a_repetition_is_asked_for_again_with_another_seed() -> None:
    session, asked = play([FIRST, TEAS, FIRST, SECOND, POT], 4)
    assert [turn.text for turn in session.turns] == [FIRST, TEAS, SECOND, POT]
    first, again = asked[2], asked[3]
    assert first.messages == again.messages
    assert first.sampling.seed != again.sampling.seed
    assert session.turns[2].usage.completion > session.turns[0].usage.completion


def test_a_third_repetition_is_spoken() -> None:
    session, asked = play([FIRST, TEAS, FIRST, FIRST, FIRST], 3)
    assert session.turns[2].text == FIRST
    assert len(asked) == 5


def test_an_assistant_that_gives_instructions_is_asked_again() -> None:
    flipped = "Solution: Here is more.\n1. Instruction: Explain why you drink it.\nNext request."
    session, _ = play([FIRST, flipped, TEAS], 2)
    assert session.turns[1].text == TEAS
    assert session.ending is not None
    assert session.ending.code == "max_messages"


def test_an_instruction_opens_in_a_way_that_was_not_used() -> None:
    grammar = build_user_format(small=True, plain=True, used=[FIRST]).grammar
    assert '"List three "' not in grammar
    assert '"Explain how to "' in grammar


def test_all_openings_return_when_none_is_left() -> None:
    whole = build_user_format(small=True, plain=True).grammar
    rule = next(line for line in whole.splitlines() if line.startswith("opening ::="))
    said = [
        f"Instruction: {opening.strip().strip(chr(34))} tea."
        for opening in rule.partition("=")[2].strip("= ").split("|")
    ]
    assert build_user_format(small=True, plain=True, used=said).grammar == whole
