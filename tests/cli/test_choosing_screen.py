"""What a person sees who reads a stored conversation, or chooses what is said next."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from rich.console import Console

from bactrian.cli.terminal.console import hide_spinner, return_spinner, show_spinner
from bactrian.cli.view.conversation_view import ConversationView
from bactrian.models.scripted import Scripted
from bactrian.records.events import Chose, Ended, Proposed, Spoke, Started
from bactrian.records.session import Role
from bactrian.records.text import Text
from bactrian.records.turn import Decision, Proposal, Usage
from bactrian.roleplay.agent import Agent
from bactrian.roleplay.critic import CriticQuestion, HumanCritic
from bactrian.roleplay.human import HUMAN
from tests.helpers.runs import session, turn

AGENT = Agent("user", Role("Cook"), Text(""), Scripted([]))


def propose(position: int, text: str) -> Proposal:
    return Proposal(3, 1, position, "user", Text(text), Usage(1, 1), 0.1, "m", "stop")


def open_screen(width: int = 80) -> tuple[io.StringIO, ConversationView]:
    seen = io.StringIO()
    out = Console(
        file=seen, force_terminal=True, color_system=None, width=width, soft_wrap=True, markup=False
    )
    view = ConversationView(out, Console(file=io.StringIO()))
    view.show(Started(session(texts=[])))
    return seen, view


def test_a_stored_turn_is_written_once_and_moves_no_cursor() -> None:
    seen, view = open_screen()
    view.show(Spoke(turn(1, "Instruction: Name one.\nInput: None")))
    assert seen.getvalue().count("Name one.") == 1
    assert "\x1b" not in seen.getvalue()
    assert "\r" not in seen.getvalue()


def test_proposals_keep_their_indent_and_are_shown_without_the_protocol() -> None:
    seen, view = open_screen(width=30)
    view.show(Proposed(propose(1, "Instruction: Name the one tea that is greenest of all.\nInput: None")))
    shown = seen.getvalue().partition("could say (1):\n")[2].splitlines()
    assert [line.rstrip() for line in shown] == ["  Name the one tea that is", "  greenest of all."]


def test_a_proposal_that_was_made_before_is_named_and_not_repeated() -> None:
    seen, view = open_screen()
    for position, text in ((1, "Name one."), (2, "Name two."), (3, "Name two.")):
        view.show(Proposed(propose(position, text)))
    assert "could say (3): the same as 2." in seen.getvalue()
    assert seen.getvalue().count("Name two.") == 1


@pytest.mark.parametrize(
    ("chooser", "told"), [(HUMAN, "You take 2. Shorter."), ("Tea Master", "Tea Master takes 2.")]
)
def test_a_choice_names_the_one_that_made_it(chooser: str, told: str) -> None:
    seen, view = open_screen()
    decision = Decision(
        number=3,
        round=1,
        attempt=1,
        speaker="user",
        chooser=chooser,
        text=Text("2 Shorter."),
        place=2,
        reason="Shorter.",
        seconds=1.0,
        model=chooser,
    )
    view.show(Chose(decision))
    assert told in seen.getvalue()


def test_what_is_not_known_of_an_imported_turn_is_not_shown_as_zero() -> None:
    seen, view = open_screen()
    made = session(texts=[])
    view.show(Started(made))
    view.show(Spoke(replace(turn(1, "Name one."), usage=Usage(0, 0, estimated=True), seconds=0.0)))
    ending = session().ending
    assert ending is not None
    view.show(Ended(ending))
    assert "token" not in seen.getvalue()
    assert "1 message\n" in seen.getvalue()


@dataclass
class Lines:
    """A person whose answers are known."""

    answers: list[str]
    prompts: list[str] = field(default_factory=list[str])

    async def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.answers.pop(0)

    async def edit(self, prompt: str, text: str) -> str:
        return await self.ask(prompt)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (["7", "1"], "There is no proposal 7."),
        (["edit 7", "1"], "There is no proposal 7."),
        (["edit", "1"], "Which one?"),
        (["", "1"], "Nothing was chosen."),
        (["first", "1"], "'first' is not an answer."),
    ],
)
async def test_a_person_is_told_why_an_answer_does_not_count(answers: Sequence[str], why: str) -> None:
    person = Lines(list(answers))
    question = CriticQuestion("s", 0, (), AGENT, [propose(1, "Name one.")], (), feedback=False)
    (decision,) = [answer async for answer in HumanCritic(person).choose(question)]
    assert decision.place == 1
    assert person.prompts[1].startswith(why)


def test_a_spinner_leaves_the_line_to_a_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    hide_spinner()  # Without a spinner, nothing happens.
    with show_spinner(console, "thinking"):
        hide_spinner()
        assert not console._live_stack  # pyright: ignore[reportPrivateUsage]
        return_spinner()
        assert console._live_stack  # pyright: ignore[reportPrivateUsage]
    hide_spinner()
