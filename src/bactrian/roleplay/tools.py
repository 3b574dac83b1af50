"""The tools of an agent: Python functions and those of MCP servers, as a command, a recipe or a society names them.

Calls have a time limit, print nothing into the data, and never fail the session.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import inspect
import logging
import re
import shlex
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, chdir, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import asdict, dataclass, replace
from functools import wraps
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import which
from time import perf_counter
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO, TypeVar, cast, runtime_checkable

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json, to_json

from bactrian.errors import InputError, MissingExtra
from bactrian.models.faults import is_object
from bactrian.models.model import Reply
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Problem, Tool, ToolCall, Toolkit, ToolResult, Use, to_messages

if TYPE_CHECKING:  # a session without tools loads no schema of recipes
    from mcp import Client
    from mcp_types import CallToolResult

    from bactrian.recipes.schema import ToolsSpec


class BadArguments(Exception):
    """The arguments of a call do not fit its tool. The message is sent to the model."""


class ToolFailed(Exception):
    """A tool reports that it failed. The message is sent to the model."""


@runtime_checkable
class Runnable(Protocol):
    """A tool that can be called: a Python function, or one of an MCP server."""

    @property
    def tool(self) -> Tool:
        """The tool's name, description and schema."""
        ...

    async def run(self, arguments: str) -> str:
        """Call the tool with ``arguments``, a JSON object.

        Raises:
            BadArguments: they do not fit.
            Exception: any other failure.
        """
        ...


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of an agent, with their descriptions and limits."""

    kit: Toolkit
    tools: Mapping[str, Runnable]  # By name.

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that a request names."""
        return self.kit.tools

    @property
    def in_text(self) -> bool:
        """True if the text of a turn includes its calls and results."""
        return False

    def describe(self) -> str:
        """Return an addition to the system prompt; empty for none."""
        return ""

    def read_calls(self, reply: Reply) -> Reply:
        """Return ``reply`` with the calls that its text contains."""
        return reply

    def write_messages(self, uses: Sequence[Use], *, last: bool) -> list[Message]:  # noqa: ARG002
        """Return the calls and results of an unfinished turn; ``last`` if no more calls are allowed."""
        return to_messages(uses)

    def finish_text(self, text: Text, uses: Sequence[Use]) -> Text:  # noqa: ARG002
        """Return the text of a turn with calls."""
        return text

    async def call(self, call: ToolCall) -> ToolResult:
        """Call a tool. A failure becomes its result."""
        begun = perf_counter()
        text, problem = await self._outcome(call)
        seconds = perf_counter() - begun
        text = clean_text(text) or render_prompt("tool_empty")
        most = self.kit.characters
        cut = len(text) > most
        if cut:
            note = render_prompt("tool_cut", most=f"{most:,}", length=f"{len(text):,}")
            text = f"{text[:most]}\n{note}"
        return ToolResult(
            call.number,
            call.round,
            call.place,
            call.speaker,
            call.wanted.name,
            Text(text),
            problem,
            seconds,
            cut,
        )

    async def _outcome(self, call: ToolCall) -> tuple[str, Problem | None]:
        """Return the text for the model, and the kind of failure or None."""
        name = call.wanted.name
        tool = self.tools.get(name)
        if tool is None:
            return render_prompt("tool_unknown", name=repr(name), names=", ".join(self.tools)), "unknown"
        work = asyncio.ensure_future(tool.run(call.wanted.arguments))
        try:
            await asyncio.wait({work}, timeout=self.kit.seconds)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not work.done():
            work.add_done_callback(_forget)
            work.cancel()
            return render_prompt("tool_late", name=name, seconds=f"{self.kit.seconds:g}"), "timeout"
        if work.cancelled():
            return render_prompt("tool_cancelled", name=name), "failed"
        match work.exception():
            case None:
                return work.result(), None
            case BadArguments() as error:
                return render_prompt("tool_bad_arguments", name=name, problem=str(error)), "arguments"
            case ToolFailed() as error:
                return str(error), "failed"
            case error:
                kind = type(error).__name__
                problem = f"{kind}: {error}" if str(error) else kind
                return render_prompt("tool_failed", name=name, problem=problem), "failed"


def _forget(work: asyncio.Future[str]) -> None:
    """Retrieve the exception of an abandoned call, so that it is not logged."""
    if not work.cancelled():
        work.exception()


NO_TOOLS: Mapping[str, Toolbox] = MappingProxyType({})  # The toolbox of agents without tools.


# Redirects what tools print to standard error, because standard output is for data.


_in_tool: ContextVar[bool] = ContextVar("in_tool", default=False)


class _Divided:
    """A stream that writes to standard output, or to standard error in the task or thread of a tool."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _in_tool.get() else self._out, name)


@contextmanager
def divide_output() -> Generator[None]:
    """Separate the output of tools from the program's within the context."""
    out = sys.stdout
    sys.stdout = cast("TextIO", _Divided(out))
    try:
        yield
    finally:
        sys.stdout = out


@contextmanager
def redirect_to_stderr() -> Generator[None]:
    """Redirect output to standard error within the context, including tasks and threads started there."""
    token = _in_tool.set(True)
    try:
        yield
    finally:
        _in_tool.reset(token)


# Python functions as tools: the signature is the schema, the docstring the description.


_Any = Callable[..., Any]
_Result = TypeVar("_Result")
_IDLE_SECONDS = 5.0  # After which a thread ends


class FunctionTool:
    """A Python function that a model may call; one that is not async runs in a thread of its own.

    The function needs a docstring, and each argument a type that has a JSON schema.

    Raises:
        InputError: one of these is missing, or an argument cannot be passed by name.
    """

    def __init__(self, function: _Any) -> None:
        self._function, self._threads = function, Threads()
        self._arguments, schema = _read_signature(function)
        self.tool = Tool(function.__name__, _description(function), schema)

    async def run(self, arguments: str) -> str:
        """Return the result of :meth:`call`, with its errors: a text unchanged, and any other as JSON."""
        value = await self.call(arguments)
        return value if isinstance(value, str) else to_json(value, fallback=str).decode()

    async def call(self, arguments: str) -> object:
        """Call the function, and return its result.

        Raises:
            BadArguments: the arguments are not a JSON object, or do not fit the signature.
            ToolFailed: the function called ``sys.exit``.
            Exception: any exception of the function.
        """
        if arguments.lstrip().startswith("["):  # Pydantic would pass them by position.
            raise BadArguments("Input should be an object")
        try:
            read = self._arguments.validate_json(arguments)
        except ValidationError as error:
            raise BadArguments(_problems(error)) from None
        # Arguments left out keep the function's own defaults; pydantic would pass copies of them.
        named = from_json(arguments)
        values = {name: value for name, value in read.items() if name in named}
        try:
            with redirect_to_stderr():
                if inspect.iscoroutinefunction(self._function):
                    with chdir("."):  # back to this folder, whatever the tool does
                        return await self._function(**values)
                return await self._threads.run(lambda: self._function(**values))
        except SystemExit as error:  # Uncaught, it would end the program.
            raise ToolFailed(render_prompt("tool_exit", name=self.tool.name)) from error


def load_functions(named: str) -> list[FunctionTool]:
    """Load the functions of ``FILE.py``, or of ``FILE.py:NAME,NAME``. The file is executed.

    Without names, all functions that the file defines are loaded, except those that begin with an underscore.

    Raises:
        InputError: the file cannot be run, or a function is missing or cannot be a tool.
    """
    file, colon, names = named.rpartition(":")
    if not colon or not file.endswith(".py"):
        file, names = named, ""
    path = Path(file).expanduser()
    module = _module(path)
    functions = _functions(module, [name.strip() for name in names.split(",") if name.strip()], path)
    if not functions:
        raise InputError(
            "The file defines no function.", where=str(path), next="Define one, with a docstring."
        )
    try:
        return [FunctionTool(function) for function in functions]
    except InputError as error:
        raise InputError(error.what, where=f"{path}: {error.where}", next=error.next) from None


class _FreshLoader(SourceFileLoader):
    """Ignores bytecode, which counts as fresh where a file of the same size changed within a second."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError(f"{path} is always read")


def _module(path: Path) -> ModuleType:
    """Execute the file at ``path`` as a module with a unique name."""
    name = f"bactrian_tools_{sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    loader = _FreshLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    if spec is None or path.suffix != ".py" or not path.is_file():
        raise InputError(
            "There is no such Python file.", where=str(path), next="Give FILE.py or FILE.py:NAME,NAME."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Annotations written as text are resolved there.
    try:
        with redirect_to_stderr(), chdir("."):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(
            f"The file cannot be run: {type(error).__name__}: {error}",
            where=_locate(error, path),
            next="Run it with Python to see more.",
        ) from error
    return module


def _locate(error: BaseException, path: Path) -> str:
    """Return the last line of the file in the error's traceback."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{path}:{line}" if line else str(path)


def _functions(module: ModuleType, wanted: Sequence[str], path: Path) -> list[_Any]:
    defined = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    if not wanted:
        return list(defined.values())
    for name in wanted:
        if not callable(getattr(module, name, None)) or inspect.isclass(getattr(module, name)):
            raise InputError(
                f"The file has no function {name!r}.",
                where=str(path),
                next=f"It has: {', '.join(defined) or 'none'}.",
            )
    return [getattr(module, name) for name in wanted]


def _read_signature(function: _Any) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    """Return the validator of ``function``'s arguments, and their JSON schema."""
    where = getattr(function, "__name__", repr(function))
    if not callable(function):
        raise InputError("This is not a tool.", where=where, next="Give a function, or where it is: FILE.py.")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(
                f"Its argument {parameter.name!r} has no name that a model could give.",
                where=where,
                next="A tool takes no *args, no **kwargs and no positional-only arguments.",
            )
        if parameter.annotation is parameter.empty:
            raise InputError(
                f"Its argument {parameter.name!r} has no type.",
                where=where,
                next=f"Write it in the signature, for example {parameter.name}: str.",
            )

    @wraps(function)
    def collect(**arguments: object) -> dict[str, object]:
        """Replace the function, so that its arguments are validated without a call."""
        return arguments

    try:
        adapter = TypeAdapter[dict[str, Any]](cast("Any", collect))
        schema = adapter.json_schema(schema_generator=_WithoutTitles)
    except (PydanticUserError, NameError, TypeError) as error:
        unknown = isinstance(error, NameError | TypeError)
        what = "cannot be used" if unknown else "is not JSON"
        line = str(error).partition("\n")[0]
        raise InputError(
            f"A type in its signature {what}: {line}",
            where=where,
            next="Use types that JSON has, such as str, int, list and dict.",
        ) from error
    # First the properties: an endpoint's cache of prompts contains this text, in this order.
    return adapter, {"properties": {}, **schema}


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out titles, which repeat the names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        return False


def _description(function: _Any) -> str:
    text = inspect.getdoc(function)
    if not text:
        raise InputError(
            "It has no docstring.", where=function.__name__, next="Say in it what the tool is for."
        )
    return text


def _problems(error: ValidationError) -> str:
    problems: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        position = ".".join(map(str, problem["loc"]))
        what = _AS_A_FIELD.get(problem["type"], problem["msg"])
        problems.append(f"{position}: {what}" if position else what)
    return "; ".join(problems)


# A model writes a JSON object, so messages for it name fields instead of arguments.
_AS_A_FIELD = {
    "missing_argument": "Field required",
    "missing_keyword_only_argument": "Field required",
    "unexpected_keyword_argument": "Extra inputs are not permitted",
    "arguments_type": "Input should be an object",
}


class Threads:
    """Daemon threads for work that may never return, which must not block the program's exit.

    One that is idle does the next work: where other threads compute, the event loop waits long for a new one.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of ``work``, done in one of the threads."""
        done: Future[_Result] = Future()
        done.set_running_or_notify_cancel()  # A caller that no longer waits cannot stop it.
        # A thread that is idle keeps the folder of its start.
        context, folder = copy_context(), Path.cwd()

        def run() -> None:
            try:
                with chdir(folder):
                    value = context.run(work)
            except StopIteration as error:  # A future cannot carry a StopIteration.
                done.set_exception(RuntimeError(f"StopIteration: {error}"))
            except BaseException as error:  # noqa: BLE001  passed on to the waiting task
                done.set_exception(error)
            else:
                done.set_result(value)

        if self._idle:
            self._idle.pop().put(run)
        else:
            threading.Thread(target=self._serve, args=(run,), name="bactrian-tool", daemon=True).start()
        return await asyncio.wrap_future(done)

    def _serve(self, run: Callable[[], None]) -> None:
        _separate_folder()
        orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        while True:
            run()
            self._idle.append(orders)
            try:
                run = orders.get(timeout=_IDLE_SECONDS)
            except Empty:
                with suppress(ValueError):
                    self._idle.remove(orders)
                    return
                run = orders.get()  # which came just now


_CLONE_FS = 0x200  # unshare(2): working folder, root and umask


def _separate_folder() -> None:
    """Give this thread a working folder of its own where the system can, so that a tool may change it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(_CLONE_FS)


DEFAULT_LIMITS = Toolkit(())  # Default limits on an agent's tools.
BY_RULES = "svg"  # The value of `image` that draws without a model


@asynccontextmanager
async def open_tools(
    wanted: Mapping[str, ToolsSpec],
    added: Mapping[str, Sequence[Callable[..., object] | Runnable]] = MappingProxyType({}),
    *,
    embodied: Collection[str] = (),
) -> AsyncGenerator[dict[str, Toolbox]]:
    """Load the tools of each agent and start their servers. Agents share what they have in common.

    ``added`` are further functions by agent, and ``embodied`` the agents that have a folder for files.

    Raises:
        InputError: a file, a function in it or a server cannot be used, two tools of an agent have the same name, or an
            agent that is not embodied is to draw.
        MissingExtra: the optional part ``mcp`` is not installed.
    """
    for agent in wanted.keys() - set(embodied):
        if wanted[agent].image is not None:
            raise InputError(
                "A picture is a file, and only an embodied agent has a folder for files.",
                option="tools.image",
                next="Let the assistant act: embodied=ROLE, or `embodied = true` in a recipe.",
            )
    functions: dict[str, Sequence[Runnable]] = {}
    painters: dict[str, Runnable] = {}
    servers: dict[str, Sequence[Runnable]] = {}
    async with AsyncExitStack() as stack:
        if any(spec.python for spec in wanted.values()):
            stack.enter_context(divide_output())
        for spec in wanted.values():
            for file in spec.python:
                if file not in functions:
                    functions[file] = load_functions(file)
            for command in spec.mcp:
                if command not in servers:
                    servers[command] = await stack.enter_async_context(open_server(command))
            if spec.image is not None and spec.image not in painters:
                from bactrian.roleplay.picture_tool import open_picture_tool

                painters[spec.image] = await stack.enter_async_context(open_picture_tool(spec.image))
        yield {
            agent: build_toolbox(
                [
                    *(tool for file in spec.python for tool in functions[file]),
                    *(tool for command in spec.mcp for tool in servers[command]),
                    *([painters[spec.image]] if spec.image is not None else []),
                    *added.get(agent, ()),
                ],
                Toolkit((), spec.rounds, spec.seconds, spec.characters),
                agent=agent,
            )
            for agent, spec in wanted.items()
        }


def build_toolbox(
    given: Iterable[Runnable | Callable[..., object]],
    limits: Toolkit = DEFAULT_LIMITS,
    *,
    agent: str = "assistant",
) -> Toolbox:
    """Make the toolbox of ``agent`` from Python functions or loaded tools.

    Only the numbers in ``limits`` are used.

    Raises:
        InputError: a function cannot be a tool, two tools have the same name, or no tool is given.
    """
    by_name: dict[str, Runnable] = {}
    for item in given:
        tool: Runnable = item if isinstance(item, Runnable) else FunctionTool(item)
        if tool.tool.name in by_name:
            raise InputError(
                f"The {agent} has two tools named {tool.tool.name!r}.",
                option="tools",
                next="Rename tool, or take only some of a file: FILE.py:NAME,NAME.",
            )
        by_name[tool.tool.name] = tool
    if not by_name:
        raise InputError(
            f"The {agent} has tools, and none is named.",
            option="tools",
            next='For example python = "tools.py"',
        )
    return Toolbox(replace(limits, tools=tuple(tool.tool for tool in by_name.values())), by_name)


# Tools of MCP servers: programs that speak the Model Context Protocol over their standard input and output.


# With the place of the package: a server gets no PYTHONPATH.
_GUARD = "import sys; sys.path.append({!r}); from bactrian.sandbox.server_guard import main; main()"
_NO_LOG, _ALONE = logging.NullHandler(), "Run the command by itself to see what it says."
_CONNECT = 60.0
"""Seconds until a server must have listed its tools; npx or uvx may have to download it first."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
# Every request carries the tools of its agent.
_MOST_TOOLS = 500
_LARGEST_TOOL = 1 << 16
"""Bytes of a tool's JSON."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a running server."""

    tool: Tool
    client: Client
    name: str  # The server's name for it; endpoints allow fewer characters.

    async def run(self, arguments: str) -> str:
        """Call the tool. Return the text of its result, with a note instead of images and sound.

        Raises:
            BadArguments: the arguments are not a JSON object.
            ToolFailed: the server reports a failure.
            Exception: the server has ended, or violates the protocol.
        """
        try:
            parsed = from_json(arguments)
        except ValueError as error:
            raise BadArguments(str(error)) from None
        if not is_object(parsed):
            raise BadArguments("they are not a JSON object")
        result = await self.client.call_tool(self.name, parsed)
        text = _text(result)
        if result.is_error:
            raise ToolFailed(text)
        return text


@asynccontextmanager
async def open_server(command: str) -> AsyncGenerator[list[ServerTool]]:
    """Start the server of a command line, keep it running within the context, and yield its tools.

    It receives only the common environment variables (``PATH``, ``HOME`` …), so that no key leaks into it.

    Raises:
        InputError: it cannot be started, or is not an MCP server.
        MissingExtra: the optional part ``mcp`` is not installed.
    """
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "An MCP server")
    words = _words(command)
    ready: asyncio.Future[list[ServerTool]] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    # A separate task, because the library wraps exceptions raised within its contexts in exception groups.
    keeper = asyncio.create_task(_keep(words, ready, over))
    try:
        yield await ready
    finally:
        over.set()
        if ready.cancelled():  # A signal is not kept waiting for a server that does not answer.
            keeper.cancel()
        await asyncio.wait([keeper])


async def _keep(words: Sequence[str], ready: asyncio.Future[list[ServerTool]], over: asyncio.Event) -> None:
    """Run a server until ``over`` is set; ``ready`` receives its tools or the error."""
    from mcp import Client, StdioServerParameters, stdio_client

    # The library logs with a traceback what it cannot read.
    logging.getLogger("mcp").addHandler(_NO_LOG)
    guard = _GUARD.format(str(Path(__file__).parents[2]))
    process = StdioServerParameters(command=sys.executable, args=["-Pc", guard, *words])
    # The server's log goes to standard error, like this program's progress.
    transport = stdio_client(process, errlog=sys.__stderr__ or sys.stderr)
    try:
        if which(words[0]) is None:
            raise FileNotFoundError(f"there is no program {words[0]!r}")
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(_CONNECT):
                client = await stack.enter_async_context(Client(transport))
                offered = await _listed(client)
            if not ready.done():
                ready.set_result(offered)
            await over.wait()
    except Exception as error:  # noqa: BLE001 (the library lets through whatever a server's messages cause)
        if not ready.done():  # Later, each call reports the error itself.
            what = f"The MCP server cannot be used: {_reason(error)}."
            ready.set_exception(InputError(what, where=shlex.join(words), next=_ALONE))


async def _listed(client: Client) -> list[ServerTool]:
    listed: list[ServerTool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            # Results are texts here. The library would check them in this loop, with patterns that can take for ever.
            (tool.output_schema or {}).clear()
            name = _NO_NAME.sub("_", tool.name)[:_LONGEST_NAME]
            if not name:
                raise ValueError("a tool of it has no name")
            declared = Tool(name, tool.description or tool.title or tool.name, tool.input_schema)
            if len(to_json(asdict(declared))) > _LARGEST_TOOL:
                raise ValueError(f"the description of its tool {name} has more than {_LARGEST_TOOL:,} bytes")
            listed.append(ServerTool(declared, client, tool.name))
        if len(listed) > _MOST_TOOLS or cursor == page.next_cursor is not None:
            raise ValueError(f"its list of tools has no end, or more than {_MOST_TOOLS}")
        cursor = page.next_cursor
        if cursor is None:
            break
    if not listed:
        raise ValueError("it has no tools")
    return listed


def _words(command: str) -> list[str]:
    try:
        words, problem = shlex.split(command), "it is empty"
    except ValueError as error:
        words, problem = [], str(error)
    if not words:
        what = f"The command line of an MCP server cannot be read: {problem}."
        raise InputError(what, where=command, option="tools.mcp", next='For example "uvx some-server"')
    return words


def _text(result: CallToolResult) -> str:
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return to_json(result.structured_content, fallback=str).decode()
    return "\n".join(parts)


def _part(block: Any) -> str:
    """Return the text of a piece of content; for an image or a sound, its type."""
    if block.type == "text":
        return block.text
    if block.type == "resource" and hasattr(block.resource, "text"):
        return block.resource.text
    kind = getattr(block, "mime_type", None)
    return f"[{block.type}{f', {kind}' if kind else ''}]"


def _reason(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return _reason(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return (
        "it took too long"
        if isinstance(error, TimeoutError)
        else str(error).rstrip(".") or type(error).__name__
    )
