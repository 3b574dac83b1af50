"""Events as JSON lines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from bactrian.records.candidate import Decision, Proposal
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.tool import ToolCall, ToolResult, read_arguments
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage


def write_line(event: Event, **more: object) -> None:
    """Write one event to standard output as one line of JSON."""
    sys.stdout.write(json.dumps(to_object(event) | more, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def to_object(event: Event) -> dict[str, object]:
    """The event as a JSON object, in the shape that ``bactrian play --json`` promises."""
    match event:
        case Started(session):
            origin = session.provenance
            return {
                "event": "started",
                "session": session.id,
                "assistant_role": session.assistant.name,
                "user_role": session.user.name,
                "assistant_description": session.assistant.description,
                "user_description": session.user.description,
                "agents": {name: role.name for name, role in origin.cast.items()},
                "original_task": session.task.original,
                "specified_task": session.task.specified,
                "planned_task": session.task.planned,
                "protocol": origin.protocol,
                "prompts": origin.prompts,
                "prompts_hash": origin.prompts_hash,
                "models": dict(origin.models),
                "sampling": {agent: asdict(sampling) for agent, sampling in origin.sampling.items()},
                "language": origin.language,
                "usage": _usage(session.preparation),
                "stored_turns": len(session.turns),
            }
        case Spoke(turn):
            return {"event": "spoke", **_turn(turn)}
        case Proposed(proposal):
            return {"event": "proposed", **_proposal(proposal)}
        case Chose(verdict):
            return {"event": "chose", **_verdict(verdict)}
        case Called(call):
            return {"event": "called", **_call(call)}
        case Returned(result):
            return {"event": "returned", **_result(result)}
        case Ended(ending, error):
            line: dict[str, object] = {
                "event": "ended",
                "code": ending.code,
                "turn": ending.turn,
                "speaker": ending.speaker,
                "evidence": ending.evidence,
            }
            return line if error is None else line | {"error": str(error)}


def _turn(turn: Turn) -> dict[str, object]:
    return {
        "turn": turn.number,
        "speaker": turn.speaker,
        "role": turn.role,
        "text": turn.text,
        "said": asdict(turn.said) if turn.said is not None else None,
        "usage": _usage(turn.usage),
        "seconds": round(turn.seconds, 4),
        "first_token": None if turn.first_token is None else round(turn.first_token, 4),
        "model": turn.model,
        "finish": turn.finish,
        "lossy": turn.lossy,
        **({"thought": turn.thought} if turn.thought else {}),
    }


def _proposal(proposal: Proposal) -> dict[str, object]:
    return {
        "turn": proposal.number,
        "round": proposal.round,
        "place": proposal.place,
        "parent": proposal.parent,
        "speaker": proposal.speaker,
        "text": proposal.text,
        "usage": _usage(proposal.usage),
        "seconds": round(proposal.seconds, 4),
        "model": proposal.model,
        "finish": proposal.finish,
        "lossy": proposal.lossy,
        **({"thought": proposal.thought} if proposal.thought else {}),
    }


def _verdict(verdict: Decision) -> dict[str, object]:
    return {
        "turn": verdict.number,
        "round": verdict.round,
        "attempt": verdict.attempt,
        "speaker": verdict.speaker,
        "chooser": verdict.chooser,
        "place": verdict.place,
        "kept": list(verdict.kept),
        "instead": verdict.instead,
        "reason": verdict.reason,
        "feedback": verdict.feedback,
        "problem": verdict.problem,
        "text": verdict.text,
        "usage": _usage(verdict.usage),
        "seconds": round(verdict.seconds, 4),
        "model": verdict.model,
    }


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "turn": call.number,
        "round": call.round,
        "place": call.place,
        "speaker": call.speaker,
        "name": call.wanted.name,
        "arguments": read_arguments(call.wanted.arguments),
        "text": call.text,
        "usage": _usage(call.usage),
        "seconds": round(call.seconds, 4),
        "model": call.model,
    }


def _result(result: ToolResult) -> dict[str, object]:
    return {
        "turn": result.number,
        "round": result.round,
        "place": result.place,
        "speaker": result.speaker,
        "name": result.name,
        "text": result.text,
        "problem": result.problem,
        "seconds": round(result.seconds, 4),
        "cut": result.cut,
    }


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
        "estimated": usage.estimated,
    }
