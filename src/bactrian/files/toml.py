"""Strict reading of user-written TOML files: recipes, societies, packs; plain messages with the position of a fault."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from bactrian.errors import InputError

if TYPE_CHECKING:  # pydantic is not loaded at the start of the program, which suggests names of commands
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_Model = TypeVar("_Model", bound="BaseModel")
KeyPath = tuple[str | int, ...]  # Path of a value in the content: `("axes", 1, "count")`
LARGEST = 256 * 1024  # Maximum size of such a file, in bytes

_POSITION = re.compile(r" ?\(at line (\d+), column (\d+)\)")
_HEADER = re.compile(r"^[ \t]*\[{1,2}(?P<name>[^\[\]\n\"',]+)\]{1,2}[ \t]*(?:#.*)?$", re.MULTILINE)
_SHOWN = 100  # Characters of a line that an error shows
# Maximum number of lines checked for the position of a key; each check parses everything before the line.
_LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class FileKind:
    """The kind of a file, for its error messages."""

    name: str  # For example `prompt pack`
    error: type[InputError]
    help: str  # The documentation page that shows an example
    many: str  # The last word of its name in the plural: `packs`
    folder: str = ""  # Where the built-in ones are, within this package

    def list_built_in(self) -> tuple[str, ...]:
        """Return the names of the built-in files."""
        names = (file.name for file in files("bactrian").joinpath(self.folder).iterdir())
        return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))

    def find(self, where: str) -> TomlSource:
        """Read the file that ``where`` names: a built-in one, otherwise a path.

        Raises:
            InputError: neither exists, or the file cannot be read.
        """
        known = self.list_built_in()
        if not where:
            raise self.error(
                f"The name of the {self.name} is empty.", next=f"Built-in {self.many}: {', '.join(known)}."
            )
        if where in known:
            built_in = files("bactrian").joinpath(self.folder, f"{where}.toml")
            return decode(where, built_in.read_bytes(), self)
        try:
            with Path(where).open("rb") as file:
                return decode(where, file.read(LARGEST + 1), self, os.fstat(file.fileno()).st_size)
        except FileNotFoundError as error:
            raise self.error(
                f"There is no {self.name} of this name and no such file.{suggest_name(where, known)}",
                where=where,
                next=f"Built-in {self.many}: {', '.join(known)}. Or give the path to a .toml file.",
            ) from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = error.strerror if isinstance(error, OSError) else error
            raise self.error(
                f"The {self.name} cannot be read: {reason}.",
                where=where,
                next="Give the path to a .toml file.",
            ) from error


@dataclass(frozen=True, slots=True)
class TomlSource:
    """The text of a file, and its path or name."""

    where: str
    text: str
    kind: FileKind

    def table(self) -> dict[str, object]:
        """Parse the file.

        Raises:
            InputError: it is not valid TOML.
        """
        try:
            return tomllib.loads(self.text)
        except RecursionError as error:
            raise self.kind.error(
                f"The {self.kind.name} is nested too deeply.",
                where=self.where,
                next=f"Remove some levels; {self.kind.help} shows an example.",
            ) from error
        except ValueError as error:  # TOMLDecodeError, or a number with too many digits
            position = _POSITION.search(str(error))
            other = _guess_format(self.text)
            what = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number is too long"
            raise self.kind.error(
                f"The {self.kind.name} is not valid TOML: {_POSITION.sub('', what)}.",
                where=":".join((self.where, *(position.groups() if position else ()))),
                next=self._show_line(*map(int, position.groups()) if position else ())
                + f"{f'This is {other}: write it as TOML' if other else 'Correct the file'}; "
                f"{self.kind.help} shows an example.",
            ) from error

    def validate(self, model: type[_Model], data: object, changed: Collection[KeyPath] = ()) -> _Model:
        """Return ``data`` as ``model``; ``changed`` are the paths of values that are not from the file.

        Raises:
            InputError: it does not fit.
        """
        from pydantic import ValidationError

        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise explain_validation_error(error, self, model, changed) from error

    def check_keys(
        self, data: Mapping[str, object], known: Collection[str], needed: Collection[str], kind: str
    ) -> None:
        """Raise an error for an unknown key, or for a missing key among ``needed``."""
        for key in data:
            if key not in known:
                raise self.error(
                    f"Unknown {kind} {key!r}.{suggest_name(key, known)}",
                    key,
                    f"Known {kind}s: {', '.join(known)}.",
                )
        if missing := [key for key in needed if key not in data]:
            raise self.kind.error(
                f"The {self.kind.name} lacks the {kind} {', '.join(map(repr, missing))}.",
                where=self.where,
                next=f"Needed {kind}s: {', '.join(needed)}.",
            )

    def subtable(self, data: Mapping[str, object], key: str) -> dict[str, object]:
        """Return the table under ``key``."""
        if not isinstance(data[key], dict):
            raise self.error(f"{key!r} is not a table.", key, f"Start it with the line [{key}].")
        return cast("dict[str, object]", data[key])

    def string(self, data: Mapping[str, object], key: str) -> str:
        """Return the string under ``key``."""
        value = data[key]
        if not isinstance(value, str):
            raise self.error(f"{key!r} is not a string.", key, "Put it in quotes.")
        return value

    def error(
        self, what: str, key: str, next: str | None, *, within: tuple[int, int] | None = None
    ) -> InputError:
        """Return an error at ``key``, or at the start of the part ``within`` if the key is not in the file."""
        return self.kind.error(what, where=self._locate_key(key, within), next=next)

    def part(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Return the start and end of the table that contains ``path``.

        ``("axes", 1, "count")`` lies in the second ``[[axes]]``. Keys outside any table lie in the part before the
        first table.
        """
        headers = list(_HEADER.finditer(self.text))
        top = (0, headers[0].start() if headers else len(self.text))
        if not path:
            return top
        tables = [header for header in headers if header["name"].strip() == path[0]]
        number = path[1] if len(path) > 1 and isinstance(path[1], int) else 0
        if number >= len(tables):
            return top
        begin = tables[number].start()
        others = (
            header.start()
            for header in headers
            if header.start() > begin and not header["name"].strip().startswith(f"{path[0]}.")
        )
        return begin, next(others, len(self.text))

    def _show_line(self, line: int = 0, column: int = 0) -> str:
        """Return the line with a caret below the column, as the start of a sentence; empty without a position."""
        if not line:
            return ""
        text = self.text.split("\n")[line - 1] if self.text.count("\n") >= line - 1 else ""
        begin = max(0, column - 1 - _SHOWN // 2)
        text = "".join(letter if letter.isprintable() else " " for letter in text[begin : begin + _SHOWN])
        return f"{text}\n{' ' * (column - 1 - begin)}^ "

    def _locate_key(self, key: str, within: tuple[int, int] | None) -> str:
        """Return ``file:line:column`` of ``key``; only the file if the key is written in an unusual way."""
        start, stop = within or (0, len(self.text))
        quoted = rf"(?P<quote>\"|'|){re.escape(key)}(?P=quote)"
        written = re.compile(rf"^[ \t]*\[{{0,2}}[ \t]*{quoted}[ \t]*[=\]]", re.MULTILINE)
        for match in islice(written.finditer(self.text, start, stop), _LOOKED_AT):
            if _is_toml(self.text[: match.start()]):  # so this line is not inside a multi-line string
                return self._at(match.end() - len(match[0].lstrip()))
        if within is None:
            return self.where
        inline = re.compile(rf"[{{,][ \t]*(?P<key>{quoted})[ \t]*=").search(self.text, start, stop)
        return self._at(inline.start("key") if inline else start)

    def _at(self, position: int) -> str:
        line = self.text.count("\n", 0, position) + 1
        return f"{self.where}:{line}:{position - self.text.rfind(chr(10), 0, position)}"


def decode(where: str, content: bytes, kind: FileKind, size: int = 0) -> TomlSource:
    """Decode ``content``, the first bytes of a file of ``size`` bytes; 0 if ``content`` is the whole file.

    Raises:
        InputError: the file is too large or not UTF-8.
    """
    if len(content) > LARGEST:
        raise kind.error(
            f"The {kind.name} has {max(size, len(content)):,} bytes; the limit is {LARGEST:,}.",
            where=where,
            next="Check that this is the file you mean.",
        )
    try:
        return TomlSource(where, content.decode("utf-8-sig"), kind)
    except UnicodeDecodeError as error:
        content = error.object  # without a byte order mark
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise kind.error(
            f"The {kind.name} is not UTF-8 text.", where=f"{where}:{line}:{column}", next="Save it as UTF-8."
        ) from error


def check_table(value: object) -> dict[str, object]:
    """Return ``value`` if it is a table, otherwise an empty table; the schema rejects the value later."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def resolve_beside(where: str, table: dict[str, object], key: str) -> None:
    """Resolve the path or list of paths under ``key`` relative to the folder of the file ``where``."""
    folder = Path(where).parent
    match table.get(key):
        case str(path):
            table[key] = str(folder / path)
        case list():
            paths = cast("list[object]", table[key])
            table[key] = [str(folder / path) if isinstance(path, str) else path for path in paths]
        case _:
            pass


def suggest_name(word: str, known: Collection[str]) -> str:
    """Return the hint " Did you mean …?" for the known word nearest to ``word``; empty if none is near."""
    near = get_close_matches(word, known, n=1) or sorted(
        name for name in known if word and name.startswith(word)
    )
    return f" Did you mean {near[0]!r}?" if near else ""


def _guess_format(text: str) -> str | None:
    """Return the name of the format the text seems to be in instead of TOML; None if not recognized."""
    if text.lstrip()[:1] == "{":
        return "JSON"
    return "YAML" if re.match(r"\s*(?:---|\w+:(?:\s|$))", text) else None


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


# Plain error messages for violations of a schema, with their position in the file.

# Messages in TOML's terms, by pydantic's error type.
_MESSAGES = {
    "tuple_type": "this is not a list",
    "model_type": "this is not a table",
    "dict_type": "this is not a table",
    "string_type": "this is not a string in quotes",
    "bool_type": "this is neither true nor false",
    "int_type": "this is not an integer",
    "float_type": "this is not a number",
    "too_short": "this list is empty",
    "string_too_short": "this is empty",
}
_PATTERNS = {
    r"\S": "this is empty",
    r"^[^\x00]*[^\s\x00][^\x00]*$": "this is empty or contains a NUL character",
    r"^[a-z0-9][a-z0-9-]{0,63}$": "a name has 1 to 64 lower-case letters, digits and hyphens",
    r"^[a-z][a-z0-9_]{0,63}$": "a name has 1 to 64 lower-case letters, digits and underscores, a letter first",
    r"^beam:[1-9]\d?x[1-9]\d?$": "a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3",
}


def explain_validation_error(
    error: ValidationError, source: TomlSource, model: type[BaseModel], changed: Collection[KeyPath] = ()
) -> InputError:
    """Return an error for the first fault. Its location is ``--set`` if the fault lies in a ``changed`` value."""
    # A misspelt key is reported as missing too; the unknown key is the better hint.
    faults = error.errors(include_url=False)
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    context: dict[str, Any] = first.get("ctx", {})
    path: KeyPath = (*first["loc"], *context.get("place", ()))
    missing = [repr(_join_path(fault["loc"], source)) for fault in faults if fault["type"] == "missing"]
    what, following = _describe(first, path, source, model, missing)
    if any(path[: len(each)] == each or each[: len(path)] == path for each in changed if path):
        return source.kind.error(what, option="settings", next=following)
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    return source.error(what, key, following, within=source.part(path))


def _describe(
    first: ErrorDetails, path: KeyPath, source: TomlSource, model: type[BaseModel], missing: Sequence[str]
) -> tuple[str, str]:
    """Return the problem and the next action; ``missing`` are all keys that are."""
    name = _join_path(path, source) or f"The {source.kind.name}"
    help_text = f"{source.kind.help} shows what a {source.kind.name} looks like."
    context: dict[str, Any] = first.get("ctx", {})
    match first["type"]:
        case "missing" if len(missing) > 1:
            return f"The keys {', '.join(missing)} are missing.", help_text
        case "extra_forbidden":
            known = _list_keys(model, path[:-1])
            hint = suggest_name(str(path[-1]), known)
            return f"Unknown key {str(path[-1])!r}.{hint}", f"Known keys: {', '.join(known)}."
        case "missing":
            return f"The key {name!r} is missing.", help_text
        case "string_pattern_mismatch" if context.get("pattern") in _PATTERNS:
            message = _PATTERNS[context["pattern"]]
        case kind:
            message = _MESSAGES.get(kind) or first["msg"].removeprefix("Value error, ")
    hint = suggest_name(context["word"], context["known"]) if "word" in context else ""
    return f"{name}: {message[:1].lower()}{message[1:]}.{hint}", help_text


def _join_path(path: KeyPath, source: TomlSource) -> str:
    """Return ``path`` with dots; items of a list by their name: ``axes.task.count``."""
    content: Any = source.table()
    parts: list[str] = []
    for part in path:
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            content = None
        if isinstance(part, str):
            parts.append(part)
        else:
            name = check_table(content).get("name")
            parts.append(name if isinstance(name, str) else str(part + 1))
    return ".".join(parts)


def _list_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the keys that the table at ``path`` may have."""
    for part in path:
        if isinstance(part, str):
            model = _find_model(model.model_fields[part].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _find_model(annotation: Any) -> type[BaseModel] | None:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((nested for each in get_args(annotation) if (nested := _find_model(each))), None)
