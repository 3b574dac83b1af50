"""The process inside the sandbox: locks itself down, and then runs programs, blocks and calls.

Its first message comes from the trusted side, as ``marshal``. From then on both sides send frames of JSON. Whatever
this process says after the program has begun may be forged by the program.
"""

from __future__ import annotations

import _socket
import array

# Before any program runs: what is imported later may be a module of the program.
import json  # noqa: F401  # pyright: ignore[reportUnusedImport]
import marshal
import os
import signal
import struct
import sys
from types import FrameType, ModuleType, TracebackType

from bactrian.sandbox.inside.lockdown import (
    check_lockdown,
    drop_capabilities,
    hide_memory,
    limit_resources,
    mount_scratch,
    refuse_calls,
    restrict_files,
)
from bactrian.sandbox.inside.values import Unsupported, decode_value, encode_value, pack_frame, unpack_frame

TRACE = 20_000  # most characters of a traceback


class TimeLimit(BaseException):
    """The block has used its CPU time."""


class Worker:
    """Serves the trusted side through ``channel``."""

    def __init__(self, channel: _socket.socket) -> None:
        self._channel = channel
        self.names: dict[str, object] = {}

    def read(self) -> bytes | None:
        """Return the body of the next message; None if the trusted side has closed the channel."""
        head = self._read_exactly(4)
        return None if head is None else self._read_exactly(struct.unpack(">I", head)[0])

    def _read_exactly(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            part = self._channel.recv(min(size, 1 << 20))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def send(self, content: dict[str, object]) -> None:
        """Send a message."""
        frame = memoryview(pack_frame(content))
        while frame:
            frame = frame[self._channel.send(frame) :]

    def serve(self) -> None:
        """Run blocks and calls until the trusted side closes the channel."""
        while (body := self.read()) is not None:
            message = unpack_frame(body)
            try:
                with _CpuLimit(message.get("cpu")):
                    if message["do"] == "run":
                        answer = self._run(str(message["code"]), str(message["name"]))
                    else:
                        answer = self._call(message)
            except BaseException as error:  # whatever a program raises is its answer
                answer = _describe_error(error)
            _flush()
            self.send(answer)

    def _run(self, code: str, name: str) -> dict[str, object]:
        _remember_source(name, code)
        exec(compile(code, name, "exec"), self.names)  # that is what the sandbox is for
        return {"done": True}

    def _call(self, message: dict[str, object]) -> dict[str, object]:
        name = str(message["name"])
        if name not in self.names:
            return {"done": False, "error": "NameError", "text": f"there is no {name!r}", "missing": True}
        arguments, keywords = decode_value(message["arguments"]), decode_value(message["keywords"])
        function = self.names[name]
        result: object = function(*arguments, **keywords)  # type: ignore[operator,misc]
        try:
            return {"done": True, "value": encode_value(result)}  # pyright: ignore[reportUnknownArgumentType]
        except Unsupported as error:
            return {"done": True, "unsupported": str(error)[:200]}

    def act(self, action: str, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
        """Ask the trusted side to run ``action`` and return its result.

        Raises:
            RuntimeError: the action failed, or a value cannot cross.
        """
        _flush()
        self.send(
            {"action": action, "arguments": encode_value(arguments), "keywords": encode_value(keywords)}
        )
        body = self.read()
        if body is None:
            os._exit(1)
        reply = unpack_frame(body)
        if "error" in reply:
            raise RuntimeError(str(reply["error"]))
        return decode_value(reply["value"])


class _CpuLimit:
    """Interrupts a block that uses more than ``seconds`` of CPU time, so that its session can continue."""

    def __init__(self, seconds: object) -> None:
        self._seconds = float(seconds) if isinstance(seconds, int | float) else 0.0

    def __enter__(self) -> None:
        if self._seconds:
            signal.signal(signal.SIGPROF, _interrupt)
            signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def __exit__(self, *_: object) -> None:
        if self._seconds:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimit("the block has used its CPU time")


def _describe_error(error: BaseException) -> dict[str, object]:
    import traceback

    kind = type(error).__name__
    try:
        text = str(error)[:2000]
        # The first two frames are this file's.
        trace = "".join(traceback.format_exception(type(error), error, _skip_own(error)))[-TRACE:]
    except BaseException:  # an exception may not even be printable
        text = trace = kind
    return {"done": False, "error": kind, "text": text, "trace": trace}


def _skip_own(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __name__:
        trace = trace.tb_next
    return trace


def _remember_source(name: str, code: str) -> None:
    """Let tracebacks show the lines of ``code``."""
    import linecache

    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # a program may have replaced or closed it
            continue


def _run_program(worker: Worker, code: str, name: str) -> int:
    """Run ``code`` as the main program and return its exit code."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__.update(__file__=name, __builtins__=__builtins__)
    sys.argv[:] = [name]
    _remember_source(name, code)
    try:
        exec(compile(code, name, "exec"), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        described = _describe_error(error)
        _flush()
        os.write(2, str(described["trace"]).encode("utf-8", "replace"))
        worker.send({"error": described["error"]})
        return 1
    return 0


def _write_files(files: dict[str, bytes]) -> None:
    for name, content in files.items():
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "wb") as file:
            file.write(content)


def _lock_down(order: dict[str, object], guard: _socket.socket) -> None:
    """Restrict this process as ``order`` says, and hand the filter's listener to the supervisor."""
    scratch, processes = str(order["scratch"]), bool(order["processes"])
    if order["mount"]:
        mount_scratch(scratch, order["disk"], order["files_limit"])  # type: ignore[arg-type]
    os.chdir(scratch)
    _write_files(order["files"])  # type: ignore[arg-type]
    limit_resources(order)
    if not order["contain"]:
        guard.close()
        return
    drop_capabilities()
    if order["mount"]:
        hide_memory()
    # Else the supervisor, which may be an ordinary user, measures the files that this process has open.
    restrict_files(
        order["reads"],  # type: ignore[arg-type]
        [scratch, "/dev/null"],
        order["lists"],  # type: ignore[arg-type]
        execute=processes or bool(order["command"]),
    )
    listener = refuse_calls(
        order["calls"],  # type: ignore[arg-type]
        processes=processes or bool(order["command"]),
        attributes=bool(order["mount"]),
    )
    _send_handle(guard, listener, b"h")
    os.close(listener)
    guard.close()
    check_lockdown("/")


def _send_handle(channel: _socket.socket, handle: int, body: bytes) -> None:
    rights = array.array("i", [handle])
    channel.sendmsg([body], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def _equip(order: dict[str, object]) -> None:
    """Give programs what an interpreter gives them, and the packages that they may import."""
    import builtins
    from _sitebuiltins import Quitter

    builtins.exit = Quitter("exit", "Ctrl-D")
    builtins.quit = Quitter("quit", "Ctrl-D")
    sys.path[:0] = [str(order["scratch"])]
    sys.path += order["packages"]  # type: ignore[operator]


def main() -> None:
    """Serve the trusted side through the descriptors that the command line names."""
    channel = _socket.socket(fileno=int(sys.argv[1]))
    guard = _socket.socket(fileno=int(sys.argv[2]))
    worker = Worker(channel)
    body = worker.read()
    if body is None:
        return
    order = marshal.loads(body)  # noqa: S302 - the trusted side sends it before any program runs
    try:
        _lock_down(order, guard)
        # Not before: from then on, imports may find modules of the program.
        _equip(order)
        scratch = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    except Exception as error:
        worker.send({"failed": f"{type(error).__name__}: {error}"})
        return
    _send_handle(channel, scratch, pack_frame({"ready": True}))
    os.close(scratch)
    for name in [name for name in sys.modules if name.startswith("bactrian")]:
        del sys.modules[name]
    body = worker.read()
    if body is None:
        return
    message = unpack_frame(body)
    match message["do"]:
        case "serve":
            _add_actions(worker, message["actions"])  # type: ignore[arg-type]
            worker.serve()
        case "program":
            sys.exit(_run_program(worker, str(message["code"]), str(message["name"])))
        case _:
            command: list[str] = message["command"]  # type: ignore[assignment]
            channel.close()
            os.execvp(command[0], command)  # noqa: S606


def _add_actions(worker: Worker, actions: list[str]) -> None:
    """Define a function for each action of the trusted side, in a ``__main__`` that all blocks share."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    worker.names = main.__dict__
    worker.names["__builtins__"] = __builtins__
    for name in actions:
        worker.names[name] = _make_action(worker, name)


def _make_action(worker: Worker, name: str) -> object:
    def action(*arguments: object, **keywords: object) -> object:
        return worker.act(name, arguments, keywords)

    action.__name__ = action.__qualname__ = name
    return action
