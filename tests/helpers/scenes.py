"""Small scenes for the tests of the loop."""

from __future__ import annotations

from collections.abc import Mapping

from bactrian.models.model import Model, Reply, Request, get_traits
from bactrian.models.scripted import Scripted, ScriptedReply
from bactrian.protocol.pack import load_pack
from bactrian.records.events import Ended, Event, Spoke
from bactrian.records.session import Ending, Role, Session
from bactrian.records.turn import Turn
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import RolePlaySetup, new_session
from bactrian.roleplay.turns import Scene

AGENTS = ("task_specifier", "task_planner", "user", "assistant")
ASK = "Instruction: Do part {}.\nInput: None"
ANSWER = "Solution: Part {} is this.\nNext request."


class Counting:
    """Passes requests on and keeps them."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.traits = get_traits(model)
        self.requests: list[Request] = []
        self._model = model

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return await self._model.reply(request)

    async def close(self) -> None:
        await self._model.close()


def rounds(count: int) -> list[str | ScriptedReply]:
    """Turns of a conversation in which each round is another."""
    subjects = [
        "loading prices",
        "cleaning rows",
        "a moving mean",
        "orders",
        "fees",
        "risk",
        "tests",
        "logs",
        "alerts",
    ]
    words = [f"{subjects[i % 9]} {i} {'abcdefghij'[i % 10] * 9}" for i in range(count)]
    return [text.format(word) for word in words for text in (ASK, ANSWER)]


def setup(**more: object) -> RolePlaySetup:
    wish: dict[str, object] = {
        "idea": "Develop a trading bot",
        "assistant": Role("Programmer"),
        "user": Role("Trader"),
        "models": dict.fromkeys(AGENTS, "scripted"),
        "specify": False,
    }
    return RolePlaySetup(**(wish | more))  # type: ignore[arg-type]


def scene(model: Model, session: Session | None = None, **more: object) -> Scene:
    wish = setup(**more)
    pack = load_pack("ai-society")
    models: Mapping[str, Model] = dict.fromkeys(AGENTS, model)
    return build_role_play(session or new_session(wish, pack), pack, models, rules=wish.rules())


async def played(stage: Scene) -> tuple[list[Turn], Ending]:
    """The turns that were spoken, and the ending."""
    events: list[Event] = [event async for event in play_session(stage)]
    ended = events[-1]
    assert isinstance(ended, Ended)
    return [event.turn for event in events if isinstance(event, Spoke)], ended.ending


def script(*lines: str | ScriptedReply, window: int | None = None) -> Counting:
    return Counting(Scripted(lines, window=window))
