"""Count the functions between the API's door and the session: ``python -m tools.count_walk``.

An idea is played with a scripted model. Counted are the functions of the project that are called between the entry of
:func:`bactrian.play` and the first step of the loop, each once. Generated functions (of dataclasses) do not count, nor
what runs while a module is imported; reading and checking the options counts as one function.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import bactrian as bt

_SOURCE = str(Path(bt.__file__).parent)
_OPTIONS = "options.py"
_DOOR, _LOOP = "play", "play_session"


def list_walk() -> dict[str, int]:
    """Return the functions that an idea passes, in their order, each with the number of its calls."""
    calls: Counter[CodeType | str] = Counter()
    reached: list[bool] = []
    importing = threading.local()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" and code.co_name == "_find_and_load":
            importing.depth = getattr(importing, "depth", 0) + {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or reached or getattr(importing, "depth", 0):
            return
        inside = code.co_filename.startswith(_SOURCE)
        if not inside or (not calls and code.co_name != _DOOR) or code.co_name.startswith("<"):
            return
        if code.co_name == _LOOP:
            reached.append(True)
        elif code.co_filename == f"{_SOURCE}/{_OPTIONS}":
            calls["options"] += 1
        else:
            calls[code] += 1

    script = ["Instruction: Name one.\nInput: None", "Solution: Sencha.\nNext request.", "<CAMEL_TASK_DONE>"]
    model = bt.Scripted(script)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        bt.play("Choose a tea", model=model, specify=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {_name(code): count for code, count in calls.items()}


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return "the options"
    return f"{Path(code.co_filename).relative_to(_SOURCE).with_suffix('')}.{code.co_qualname}"


def main() -> None:
    """Print the functions, and their number."""
    walk = list_walk()
    for name, count in walk.items():
        print(f"{count:4} {name}")
    print(f"{len(walk)} functions from the door to the first step")


if __name__ == "__main__":
    main()
