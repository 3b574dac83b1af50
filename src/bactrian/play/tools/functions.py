"""Python functions as tools: the signature is the schema, the docstring the description."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import wraps
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json, to_json

from bactrian.errors import InputError
from bactrian.play.tools.stdout import redirect_to_stderr
from bactrian.play.tools.toolbox import BadArguments, ToolFailed
from bactrian.prompts.engine import render_prompt
from bactrian.records.tool import Tool

_Any = Callable[..., Any]


class FunctionTool:
    """A Python function that a model may call; one that is not async runs in a thread of its own.

    Each argument must have a type that can be written as JSON, and the function a docstring.

    Raises:
        InputError: it has neither, or cannot be called by the names of its arguments.
    """

    def __init__(self, function: _Any) -> None:
        self._function = function
        self._arguments, schema = _read_signature(function)
        self.tool = Tool(function.__name__, _description(function), schema)

    async def run(self, arguments: str) -> str:
        """Call it. Gives text as it is, and anything else as JSON.

        Raises:
            BadArguments: the arguments are no JSON object, or do not fit the signature.
            ToolFailed: it wants to end the program.
            Exception: whatever the function raises.
        """
        if arguments.lstrip().startswith("["):  # Pydantic would take them by their places.
            raise BadArguments("Input should be an object")
        try:
            read = self._arguments.validate_json(arguments)
        except ValidationError as error:
            raise BadArguments(_problems(error)) from None
        # Those that were left out are left to the function's own defaults, of which pydantic makes copies.
        named = from_json(arguments)
        given = {name: value for name, value in read.items() if name in named}
        try:
            with redirect_to_stderr():
                if inspect.iscoroutinefunction(self._function):
                    value = await self._function(**given)
                else:
                    value = await _in_thread(lambda: self._function(**given))
        except SystemExit as error:  # It would end the program from within any task.
            raise ToolFailed(render_prompt("tool_exit", name=self.tool.name)) from error
        return value if isinstance(value, str) else to_json(value, fallback=str).decode()


def load_functions(given: str) -> list[FunctionTool]:
    """The functions of ``FILE.py``, or those of ``FILE.py:NAME,NAME``. The file is run.

    Without names it is every function that the file defines, those that begin with an underscore left out.

    Raises:
        InputError: the file cannot be run, or a function is missing or cannot be a tool.
    """
    file, colon, names = given.rpartition(":")
    if not colon or not file.endswith(".py"):
        file, names = given, ""
    path = Path(file).expanduser()
    module = _module(path)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    functions = _functions(module, wanted, path)
    if not functions:
        raise InputError(
            "The file defines no function.", where=str(path), next="Define one, with a docstring."
        )
    try:
        return [FunctionTool(function) for function in functions]
    except InputError as error:
        raise InputError(error.what, where=f"{path}: {error.where}", next=error.next) from None


def _module(path: Path) -> ModuleType:
    """The file at ``path``, run under a name of its own."""
    name = f"bactrian_tools_{sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(
            "There is no such Python file.", where=str(path), next="Give FILE.py or FILE.py:NAME,NAME."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Types are looked up there by the names in annotations.
    try:
        with redirect_to_stderr():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(
            f"The file cannot be run: {type(error).__name__}: {error}",
            where=_place(error, path),
            next="Run it with Python to see more.",
        ) from error
    return module


def _place(error: BaseException, path: Path) -> str:
    """The last line of the file itself that the error went through."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{path}:{line}" if line else str(path)


def _functions(module: ModuleType, wanted: Sequence[str], path: Path) -> list[_Any]:
    own = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    if not wanted:
        return list(own.values())
    for name in wanted:
        if not callable(getattr(module, name, None)) or inspect.isclass(getattr(module, name)):
            raise InputError(
                f"The file has no function {name!r}.",
                where=str(path),
                next=f"It has: {', '.join(own) or 'none'}.",
            )
    return [getattr(module, name) for name in wanted]


def _read_signature(function: _Any) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    """What reads and checks the arguments of ``function``, and their JSON schema."""
    where = getattr(function, "__name__", repr(function))
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
        """Stand in for the function: only the checking of its arguments is wanted here, not yet the call."""
        return arguments

    try:
        adapter = TypeAdapter[dict[str, Any]](cast("Any", collect))
        return adapter, adapter.json_schema(schema_generator=_WithoutTitles)
    except (PydanticUserError, NameError, TypeError) as error:
        unknown = isinstance(error, NameError | TypeError)
        what = "cannot be used" if unknown else "is no JSON"
        raise InputError(f"A type in its signature {what}: {_first_line(error)}", where=where) from error


class _WithoutTitles(GenerateJsonSchema):
    """Titles repeat the names."""

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
    said: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        place = ".".join(map(str, problem["loc"]))
        what = _AS_A_FIELD.get(problem["type"], problem["msg"])
        said.append(f"{place}: {what}" if place else what)
    return "; ".join(said)


_AS_A_FIELD = {
    "missing_argument": "Field required",
    "missing_keyword_only_argument": "Field required",
    "unexpected_keyword_argument": "Extra inputs are not permitted",
    "arguments_type": "Input should be an object",
}
"""A model writes an object, so it is told of fields; pydantic speaks of a function's arguments."""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


async def _in_thread(work: Callable[[], object]) -> object:
    """What ``work`` gives in a thread that nobody waits for when the program ends: a tool may never return."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    context = copy_context()

    def tell(value: object, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def run() -> None:
        value: object = None
        fault: BaseException | None = None
        try:
            value = context.run(work)
        except StopIteration as error:  # A future cannot hold it.
            fault = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # noqa: BLE001  whoever waits is told, whatever it is
            fault = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, value, fault)

    threading.Thread(target=run, name="bactrian-tool", daemon=True).start()
    return await done
