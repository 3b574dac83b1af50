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
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar, cast

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
_Result = TypeVar("_Result")


class FunctionTool:
    """A Python function that a model may call; one that is not async runs in a thread of its own.

    The function needs a docstring, and each argument a type that has a JSON schema.

    Raises:
        InputError: one of these is missing, or an argument cannot be passed by name.
    """

    def __init__(self, function: _Any) -> None:
        self._function = function
        self._arguments, schema = _read_signature(function)
        self.tool = Tool(function.__name__, _description(function), schema)

    async def run(self, arguments: str) -> str:
        """Call the function. Return a text unchanged, and any other result as JSON.

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
        given = {name: value for name, value in read.items() if name in named}
        try:
            with redirect_to_stderr():
                if inspect.iscoroutinefunction(self._function):
                    value = await self._function(**given)
                else:
                    value = await run_in_thread(lambda: self._function(**given))
        except SystemExit as error:  # Uncaught, it would end the program.
            raise ToolFailed(render_prompt("tool_exit", name=self.tool.name)) from error
        return value if isinstance(value, str) else to_json(value, fallback=str).decode()


def load_functions(given: str) -> list[FunctionTool]:
    """Load the functions of ``FILE.py``, or of ``FILE.py:NAME,NAME``. The file is executed.

    Without names, all functions that the file defines are loaded, except those that begin with an underscore.

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
        with redirect_to_stderr():
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(
            f"The file cannot be run: {type(error).__name__}: {error}",
            where=_place(error, path),
            next="Run it with Python to see more.",
        ) from error
    return module


def _place(error: BaseException, path: Path) -> str:
    """Return the last line of the file in the error's traceback."""
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
    """Return the validator of ``function``'s arguments, and their JSON schema."""
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
        """Replace the function, so that its arguments are validated without a call."""
        return arguments

    try:
        adapter = TypeAdapter[dict[str, Any]](cast("Any", collect))
        schema = adapter.json_schema(schema_generator=_WithoutTitles)
    except (PydanticUserError, NameError, TypeError) as error:
        unknown = isinstance(error, NameError | TypeError)
        what = "cannot be used" if unknown else "is not JSON"
        raise InputError(f"A type in its signature {what}: {_first_line(error)}", where=where) from error
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
"""A model writes a JSON object, so messages for it name fields instead of arguments."""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


async def run_in_thread(work: Callable[[], _Result]) -> _Result:
    """Return the result of ``work`` in a daemon thread: a tool that never returns must not block the program's exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()
    context = copy_context()

    def tell(value: Any, error: BaseException | None) -> None:
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
        except StopIteration as error:  # A future cannot carry a StopIteration.
            fault = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # noqa: BLE001  passed on to the waiting task
            fault = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, value, fault)

    threading.Thread(target=run, name="bactrian-tool", daemon=True).start()
    return await done
