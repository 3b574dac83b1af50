"""Runs one program in a sandbox, or blocks of code one after another in a session that keeps their names."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from bactrian.errors import BactrianError, InputError, SandboxError
from bactrian.sandbox.inside.values import Unsupported, decode_value, encode_value
from bactrian.sandbox.orders import ProcessOrder
from bactrian.sandbox.sandbox_process import SandboxProcess
from bactrian.sandbox.tiers import TIERS, Artefact, ExitReport, Limits, Outcome, Tier, read_tier


@functools.cache
def choose_tier() -> Tier:
    """Return the tier that the environment variable ``BACTRIAN_TIER`` names, else the strongest that works here.

    A program was run in it.

    Raises:
        SandboxError: no tier works, or not the one that is named.
        InputError: no tier has that name.
    """
    why: list[str] = []
    if named := os.environ.get("BACTRIAN_TIER"):
        tier = find_tier(named)
        if (fault := try_tier(tier)) is not None:
            raise fault
        return tier
    if sys.platform == "linux":
        for tier in TIERS:
            if (fault := try_tier(tier)) is None:
                return tier
            why.append(f"{tier.name}: {fault.what}")
        next_action = (
            "Install bubblewrap (apt-get install bubblewrap); `bactrian doctor --sandbox` shows more."
        )
    else:
        why.append("Sandboxes need Linux.")
        next_action = "Set BACTRIAN_TIER to docker:IMAGE, podman:IMAGE or remote:COMMAND."
    raise SandboxError(
        f"This computer has no sandbox, so code of a model is not run. {'; '.join(why)}", next=next_action
    )


def try_tier(tier: Tier) -> BactrianError | None:
    """Run a program in ``tier``. Return the reason if that fails, else None."""
    try:
        process = SandboxProcess(ProcessOrder(tier))
    except BactrianError as error:
        return error
    process.close()
    return None


def find_tier(name: str | None) -> Tier:
    """Return the tier of that name; the strongest that works if None.

    Raises:
        InputError: no tier has that name.
        SandboxError: no tier works.
    """
    if name is None:
        return choose_tier()
    if (remote := read_tier(name)) is not None:
        return remote
    tiers = {tier.name: tier for tier in TIERS}
    if name not in tiers:
        raise InputError(
            f"There is no tier {name!r}.",
            option="tier",
            next=f"Use one of: {', '.join(tiers)}, docker:IMAGE, podman:IMAGE, remote:COMMAND.",
        )
    return tiers[name]


def run(
    code: str | Sequence[str],
    files: Mapping[str, bytes] | None = None,
    limits: Limits | None = None,
    *,
    tier: Tier | None = None,
    packages: bool = False,
    collect: int = 0,
    name: str = "program.py",
) -> Outcome:
    """Run a program in a sandbox and return how it ended.

    Args:
        code: Python source, or a program of the system with its arguments.
        files: Content of files in the scratch folder, the working folder of the program, by relative name.
        limits: Default: :class:`Limits`.
        tier: Default: the strongest that works.
        packages: True to let Python import the packages of this environment.
        collect: Most bytes of written files to return.
        name: The program's name in tracebacks.

    Raises:
        SandboxError: no sandbox works here, or this one did not start. Nothing was run.
        InputError: the tier cannot enforce the limits, or a file has a wrong name.
    """
    limits = limits or Limits()
    command = () if isinstance(code, str) else tuple(code)
    order = ProcessOrder(tier or choose_tier(), limits, files or {}, packages, command, limits.wall)
    process = SandboxProcess(order)
    try:
        message = {"do": "command", "command": command} if command else {"do": "program", "code": code}
        process.send({**message, "name": name})
        report = process.wait()
        error = next((str(frame["error"]) for frame in process.take_frames() if "error" in frame), "")
        stdout, stderr = process.take_output()
        artefacts = process.collect(collect)
    finally:
        process.close()
    exit_code, signal = report.decide_exit()
    return Outcome(
        ending=report.decide_ending(limits, process.overflow, error),
        exit_code=exit_code,
        signal=signal,
        stdout=stdout,
        stderr=stderr,
        cpu=report.cpu,
        wall=report.wall,
        memory=report.memory,
        tier=process.tier,
        refused=report.refused,
        wrote={artefact.name: artefact.size for artefact in artefacts},
        files={artefact.name: artefact.content for artefact in artefacts if artefact.content is not None},
    )


# Most characters of the name of a type, of an error and of a traceback
_NAME, _TEXT, _TRACE = 200, 2000, 20_000
# A function of the trusted side that sandboxed code may call by name. Its arguments come from that code.
Action = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A result of an action that is encoded already: what another sandbox gave is passed on unread."""

    content: object


# ``error``: an exception was raised. After the others except ``ok`` and some ``time``, the session has
# ended.
BlockEnding = Literal["ok", "error", "time", "memory", "output", "killed"]


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """What a block of code, or a call of a function, came to."""

    ending: BlockEnding
    error: str = ""
    """Type of the exception, as the program gives it."""
    text: str = ""
    """Text of the exception."""
    trace: str = ""
    """Traceback."""
    stdout: str = ""
    stderr: str = ""
    encoded: object = None
    """Result of a call, as it crossed the border."""
    unsupported: str = ""
    """Type of a result that is not plain; empty if it is."""
    missing: bool = False
    """True if the function that was called is not defined."""

    def read_value(self) -> object:
        """Return the result of a call.

        Raises:
            Unsupported: it is not a plain value.
        """
        if self.unsupported:
            raise Unsupported(self.unsupported)
        return decode_value(self.encoded)


class SandboxSession:
    """Runs blocks of code one after another in one sandboxed process.

    A block that uses up its CPU time is interrupted, and the session continues. A block that resists, or that reaches
    another limit, ends the session.

    Example:
        with SandboxSession(actions={"price": price}) as session:
            session.run("total = price('tea') * 2")
            session.run("print(total)").stdout

    Raises:
        SandboxError: no sandbox works here, or this one did not start.
        InputError: a limit cannot be held on this tier.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        actions: Mapping[str, Action] | None = None,
        *,
        files: Mapping[str, bytes] | None = None,
        tier: Tier | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._actions = dict(actions or {})
        self._process = SandboxProcess(ProcessOrder(tier or choose_tier(), self._limits, files or {}))
        self._report: ExitReport | None = None
        self._process.send({"do": "serve", "actions": list(self._actions)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def tier(self) -> str:
        """Name of the tier that contains it."""
        return self._process.tier

    @property
    def ended(self) -> bool:
        """True if no further block can run."""
        return self._report is not None or self._process.ended

    def run(self, code: str, name: str = "block.py", *, cpu: float = 0.0, wall: float = 0.0) -> BlockOutcome:
        """Run a block of code.

        Args:
            code: Python source. It sees the names of earlier blocks and the actions.
            name: The block's name in tracebacks.
            cpu: Seconds of CPU time for this block; 0 for no limit but the session's.
            wall: Seconds for this block; 0 for the session's limit.

        Raises:
            SandboxError: the session has ended.
        """
        return self._ask({"do": "run", "code": code, "name": name, "cpu": cpu}, wall)

    def call(
        self,
        function: str,
        arguments: tuple[object, ...] = (),
        keywords: Mapping[str, object] | None = None,
        *,
        wall: float = 0.0,
    ) -> BlockOutcome:
        """Call a function that a block has defined, with plain values.

        Raises:
            SandboxError: the session has ended.
            Unsupported: an argument is not a plain value.
        """
        message = {
            "do": "call",
            "name": function,
            "arguments": encode_value(tuple(arguments)),
            "keywords": encode_value(dict(keywords or {})),
        }
        return self._ask(message, wall)

    def collect(self, most: int = 0) -> list[Artefact]:
        """Return the files that blocks have written, with up to ``most`` bytes of their content.

        Links, devices and pipes have neither size nor content. Works after the end of the process, too.
        """
        return self._process.collect(most)

    def stop(self) -> ExitReport:
        """End the process and return what its supervisor says. Files can still be collected.

        Raises:
            SandboxError: the supervisor is gone.
        """
        if self._report is None:
            self._report = self._process.stop()
        return self._report

    def close(self) -> None:
        """End the process and remove its files."""
        self._process.close()

    def _ask(self, message: Mapping[str, object], wall: float) -> BlockOutcome:
        if self.ended:
            raise SandboxError(
                "The sandboxed session has ended.", where="sandbox", next="Begin a new session."
            )
        self._process.send(message)
        deadline = time.monotonic() + (wall or self._limits.wall)
        frames: list[dict[str, object]] = []

        def has_answer() -> bool:
            frames.extend(self._process.take_frames())
            return bool(frames)

        while not self._process.overflow and self._process.pump(has_answer, deadline):
            if time.monotonic() >= deadline:
                break
            frame = frames.pop(0)
            if "action" in frame:
                self._process.send(self._act(frame))
            elif "done" in frame:
                return self._read_answer(frame)
        return self._end(in_time=time.monotonic() < deadline)

    def _act(self, frame: Mapping[str, object]) -> dict[str, object]:
        """Run an action for the sandboxed code. Its errors go back as text."""
        name = frame["action"]
        action = self._actions.get(name) if isinstance(name, str) else None
        if action is None:
            return {"error": "There is no such action."}
        try:
            arguments, keywords = decode_value(frame.get("arguments")), decode_value(frame.get("keywords"))
            if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
                return {"error": "Garbled arguments."}
            result = action(*arguments, **keywords)
            return {"value": result.content if isinstance(result, Encoded) else encode_value(result)}
        except Unsupported as error:
            return {"error": f"This value cannot leave or enter the sandbox: {error}."}
        except Exception as error:  # noqa: BLE001 - the program learns of every failure of an action
            return {"error": f"{type(error).__name__}: {error}"}

    def _read_answer(self, frame: Mapping[str, object]) -> BlockOutcome:
        stdout, stderr = self._process.take_output()
        if frame["done"]:
            unsupported = str(frame.get("unsupported", ""))[:_NAME]
            return BlockOutcome(
                "ok", stdout=stdout, stderr=stderr, encoded=frame.get("value"), unsupported=unsupported
            )
        # The process inside cuts them, but a program may have taken its place.
        longest = {"error": _NAME, "text": _TEXT, "trace": _TRACE}
        error, text, trace = (str(frame.get(key, ""))[-most:] for key, most in longest.items())
        ending: BlockEnding = {"TimeLimit": "time", "MemoryError": "memory"}.get(error, "error")  # type: ignore[assignment]
        missing = frame.get("missing") is True
        return BlockOutcome(ending, error, text, trace, stdout, stderr, missing=missing)

    def _end(self, *, in_time: bool) -> BlockOutcome:
        """Return the outcome of a block that ended the process, or had to be ended."""
        overflow = self._process.overflow
        report = self.stop()
        stdout, stderr = self._process.take_output()
        ending = report.decide_ending(self._limits, overflow or self._process.overflow, "")
        if not in_time:
            ending = "time"
        name = report.decide_exit()[1]
        text = f"ended by {name}" if name else "the program ended itself"
        known: BlockEnding = ending if ending in ("time", "output") else "killed"
        return BlockOutcome(known, text=text, stdout=stdout, stderr=stderr)
