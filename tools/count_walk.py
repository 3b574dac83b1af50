"""Count the functions between the API's door and the session: ``python -m tools.count_walk``.

An idea is played with a scripted model. Counted are the project's functions that are called between the entry of
:func:`bactrian.play` and the first step of the loop, each once: those that the idea passes, because an argument holds
it, and the others, which read prompts, check names, make models. Functions that Python generates do not count, nor what
runs while a module is imported; reading and checking the options counts as one function.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import bactrian as bt

IDEA = "Choose a tea"
_SOURCE = str(Path(bt.__file__).parent)
_DOOR, _LOOP = "play", "play_session"


def list_walk() -> tuple[list[str], list[str]]:
    """Return the functions that the idea passes, in their order, and the others that are called."""
    passed: dict[CodeType | str, bool] = {}
    reached: list[bool] = []
    importing = threading.local()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" and code.co_name == "_find_and_load":
            importing.depth = getattr(importing, "depth", 0) + {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or reached or getattr(importing, "depth", 0):
            return
        inside = code.co_filename.startswith(_SOURCE) and not code.co_name.startswith("<")
        if not inside or (not passed and code.co_name != _DOOR):
            return
        if code.co_name == _LOOP:
            reached.append(True)
            return
        key = "options" if code.co_filename == f"{_SOURCE}/options.py" else code
        arguments = [frame.f_locals.get(name) for name in code.co_varnames[: frame.f_code.co_argcount]]
        arguments += [frame.f_locals.get(name) for name in code.co_varnames[code.co_argcount :][:20]]
        passed[key] = passed.get(key, False) or any(_holds(value, 4) for value in arguments)

    script = ["Instruction: Name one.\nInput: None", "Solution: Sencha.\nNext request.", "<CAMEL_TASK_DONE>"]
    model = bt.Scripted(script)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        bt.play(IDEA, model=model, specify=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(cast("Any", None))
    names = {key: _name(key) for key in passed}
    return [names[key] for key in passed if passed[key]], [names[key] for key in passed if not passed[key]]


def _holds(value: object, depth: int) -> bool:
    """Return True if ``value`` is the idea, or a record or a table that contains it."""
    if isinstance(value, str):
        return IDEA in value
    if not depth:
        return False
    if is_dataclass(value) and not isinstance(value, type):
        return any(_holds(getattr(value, field.name, None), depth - 1) for field in fields(value))
    if isinstance(value, Mapping):
        return any(_holds(part, depth - 1) for part in cast("Mapping[Any, object]", value).values())
    return isinstance(value, (list, tuple)) and any(
        _holds(part, depth - 1) for part in cast("list[Any]", value)
    )


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return "the options"
    return f"{Path(code.co_filename).relative_to(_SOURCE).with_suffix('')}.{code.co_qualname}"


def main() -> None:
    """Print the functions, and their numbers."""
    passed, others = list_walk()
    print("\n".join(passed))
    print(f"{len(passed)} functions that the idea passes from the door to the first step")
    print(f"and {len(others)} that it does not: {', '.join(others)}")


if __name__ == "__main__":
    main()
