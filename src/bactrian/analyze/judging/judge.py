"""The judge: a model that confirms or rejects findings of the detectors.

Its prompts are the templates ``judge_…`` of ``prompts/engine.toml``, with the definition of the behaviour, which the
detector uses, too (:func:`~bactrian.analyze.behaviours.catalogue.load_definitions`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import perf_counter

from bactrian.analyze.behaviours.catalogue import DETECTORS, load_definitions
from bactrian.analyze.behaviours.own import find_installed
from bactrian.models.model import Model, Request, ResponseFormat
from bactrian.models.traits import get_traits
from bactrian.prompts.engine import render_prompt
from bactrian.records.finding import Confirmation, Finding
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.turn import Turn

JUDGE = "judge"
TURNS_SHOWN = 5
"""The turn in question and those before it."""
QUESTION_TOKENS = 400
"""Tokens of a question besides these turns, mostly for the definition. An estimate, for forecasts."""
ANSWER_TOKENS = 40
"""Estimated tokens of an answer."""
_LONGEST = 3000
"""Maximum characters of a turn in a question; of a longer turn, both ends are included."""
_ANSWER = re.compile(r"[*_#>\"' \t]*(yes|no)\b", re.IGNORECASE)
SAMPLING = Sampling(temperature=0.0, max_tokens=120)
"""The judge's default sampling parameters."""


# The format is enforced only by grammar: other models' answers are parsed well enough without it.
_FORM = ResponseFormat(
    name="judgement",
    schema={"type": "string"},
    grammar='root ::= ("Yes" | "No") ". " [A-Z] [^\\n]{1,160} "."\n',
    read=str,
)


async def judge(
    model: Model, name: str, session: Session, finding: Finding, sampling: Sampling = SAMPLING
) -> Confirmation:
    """Ask ``model`` about ``finding``. Raises the model's errors."""
    request = Request(
        messages=(
            Message("system", Text(render_prompt("judge_system", definition=_definition(finding)))),
            Message("user", Text(_question(session.turns, finding))),
        ),
        sampling=sampling,
        response_format=_FORM if get_traits(model).constrained_by == "grammar" else None,
        session=session.id,
        agent=JUDGE,
        call_index=finding.turn,
    )
    begun = perf_counter()
    reply = await model.reply(request)
    return Confirmation(
        session=session.id,
        turn=finding.turn,
        behaviour=finding.behaviour,
        judge=name,
        holds=read_answer(reply.text),
        text=reply.text,
        usage=reply.usage,
        seconds=perf_counter() - begun,
        model=reply.model,
    )


def read_answer(text: str) -> bool | None:
    """Return True if an answer begins with yes, False if with no, else None."""
    found = _ANSWER.match(text)
    return None if found is None else found[1].lower() == "yes"


def _definition(finding: Finding) -> str:
    if finding.behaviour not in DETECTORS:
        known = {one.code: one.description for one in find_installed()}
        return known.get(finding.behaviour, finding.behaviour.replace("_", " "))
    return load_definitions()[finding.behaviour].strip()


def _question(turns: Sequence[Turn], finding: Finding) -> str:
    """Return the previous turns, then the turn in question."""
    shown = [turn for turn in turns if finding.turn - TURNS_SHOWN < turn.number <= finding.turn]
    shown_turns = [
        render_prompt("judge_turn", turn=turn.number, speaker=_name_speaker(turn), text=_cut(turn.text))
        for turn in shown
    ]
    fault = finding.behaviour.replace("_", " ")
    return render_prompt(
        "judge_question",
        turns="\n\n".join(shown_turns),
        turn=finding.turn,
        speaker=_name_speaker(shown[-1]),
        fault=fault,
    )


def _name_speaker(turn: Turn) -> str:
    return render_prompt("judge_speaker", speaker=turn.speaker, role=turn.role)


def _cut(text: str) -> str:
    text = text.strip() or render_prompt("judge_nothing")
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}\n[…]\n{text[-half:]}"
