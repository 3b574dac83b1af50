"""The limits that keep the code easy to look around in: sizes, numbers of parameters, and names.

Each rule lists what breaks it. ``KNOWN`` holds what broke it when the rule was written, and only ever gets shorter;
so do the numbers of ``AT_MOST``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import bactrian
from tools import count_code, count_path, count_walk

SOURCE = Path(bactrian.__file__).parent

VERBS = frozenset(
    """abort accept acquire add aggregate align allocate allow analyze annotate answer append apply are arrange
    ask assign attach await back begin bind bootstrap build calibrate call can cancel cap capture carry cast catch
    check choose claim clean clear close collect combine compare compile complete compute configure
    confirm connect continue convert copy correct count cover create cross cut decide declare decode defer delete
    derive describe detect discard dispatch divide doctor download draw drop dump edit emit enable
    encode end ensure enter escape estimate evaluate exclude execute exit expand explain export
    extend extract fail feed fetch fill filter find finish fit flatten flush fold follow forecast forget
    format forward freeze gather generate get give grade group guard guess handle has hash have hear
    hide hold identify ignore import include index infer ingest inject insert inspect install interpret
    interrupt invite invoke is iterate join judge keep kill label launch learn leave lend let limit link
    list load locate lock log look lower make map mark match measure merge migrate mix modify mount move
    name normalize note notify number obtain offer omit open order pack pad page pair parse partition
    pass pause peek perform persist pick plan play pop post prepare preserve prevent print probe
    process propose protect prove provide publish pull push put query quote raise rank reach read
    rebuild record recover redact redirect reduce refresh refuse register reject release remove
    rename render repair repeat replace reply report require resample reserve reset resolve respond
    restart restore restrict resume retry return review revise rewrite round run sample sanitize say
    save scale scan schedule score seal search seed select send serialize set settle share shift
    shorten show shrink shuffle shut simulate skip sleep slice solve sort spawn speak specify spell spend
    split start stem stop store stream strip subtract suggest sum summarize supply swap sweep switch
    sync take takes tell terminate test time to tokenize touch trace train transform translate
    traverse treat trim try tune turn undo unlock unpack unwrap update upgrade use validate verify
    view vote wait wake walk warn watch weigh widen withdraw wrap write yield """.split()
)
"""First words of a public function. A word that is missing is added here; a noun is not."""
NOUNS = {
    "average": "a mean is what it gives; every statistics library has it so",
    "behaviour": "a decorator of the public API: @behaviour(…)",
    "ending": "a decorator of the public API: @ending",
    "default_endings": "builds the default; a name of the public API",
    "default_sampling": "builds the default",
    "main": "the entry point",
    "new_group_chat": "builds a record; as short as its class",
    "new_session": "builds a record; as short as its class",
    "paper_endings": "builds the paper's; the sibling of default_endings",
    "recipe": "a name of the public API, as short as what it returns",
    "with_length": "a copy that differs in the length, as with_suffix of pathlib",
}
"""Public functions that begin with no verb, and why."""

ALSO_IN_DOCSTRINGS = frozenset(
    """act announce become break change commit consume define dequantise display do exchange multiply queue receive
    remember request retrieve separate serve unload""".split()
)
"""First words of docstrings, beside those of names."""

IRREGULAR = frozenset(
    """been begun born bound broken brought built bought caught chosen come cut done drawn driven eaten fallen fed felt
    found given gone got grown had heard held hidden kept known laid led left lent lost made meant met paid put read
    run said sat seen sent set shown shut slept sold spent spoken stood sworn taken taught thought thrown told torn
    understood woken won worn written""".split()
)
"""Participles that no ending tells."""
ALSO_VERBS = frozenset("come cut found lay put read run set shut".split())
"""Participles that look like their own infinitive."""
NO_PARTICIPLES = frozenset(
    "bed bring embed exceed feed king need proceed ring seed shed sing speed spring string thing wing".split()
)
"""Words with the ending of a participle that are none."""
CALLED_BY_OTHERS = frozenset(("buffer_updated", "connection_lost", "connection_made"))
"""Methods that asyncio calls by these names."""

KNOWN: dict[str, frozenset[str]] = {
    "classes": frozenset(),
    "participles": frozenset(),
    "verbs": frozenset(),
}

CORE = ("records", "protocol", "roleplay", "models", "store", "runs")
"""The packages that a session and a run pass through."""
AT_MOST = {
    "lines of code": 55_177,
    "lines of code of the core": 16_227,
    "files that share their name": 0,
    "modules of a few lines with one importer": 1,  # roleplay/loop.py: short, and the heart of the program
    "loops over `one`": 0,
    "lines of the path of a session and a run": 7_589,
    "functions that an idea passes from the door to the first step": 19,
}
"""What may only become less. Lower a number with what you save; raise one only with the reason in the commit."""
FEW_LINES = 60


class Function(NamedTuple):
    """A function or method, with where it stands."""

    file: str
    owner: str
    """Its class; empty for a function of the module."""
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def where(self) -> str:
        return f"{self.file}: {self.owner}{'.' if self.owner else ''}{self.name}"

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")

    @property
    def is_attribute(self) -> bool:
        """True for a property, which is read like a field and named like one."""
        names = [ast.unparse(decorator).split("(")[0] for decorator in self.node.decorator_list]
        return any(name.endswith(("property", ".setter")) for name in names)


@pytest.fixture(scope="module", autouse=True)
def trees() -> Generator[None]:
    """Read each file once; let go of the trees afterwards: the garbage collector would walk through them."""
    for path in list_files():
        count_lines(path)
    find_importers()
    yield
    for cached in (parse, count_lines, find_importers):
        cached.cache_clear()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def count_lines(path: Path) -> int:
    return count_code.count_lines(path, parse(path))


def list_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def to_name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def list_functions() -> Iterator[Function]:
    """Every function and method; functions within functions have no name that others could look for."""
    for path in list_files():
        tree = parse(path)
        stack: list[tuple[str, Iterable[ast.stmt]]] = [("", tree.body)]
        while stack:
            owner, body = stack.pop()
            for node in body:
                if isinstance(node, ast.ClassDef):
                    stack.append((node.name, node.body))
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield Function(to_name(path), owner, node)


def is_participle(word: str) -> bool:
    """True if ``word`` is one, as far as its ending tells; ``kept``, ``told`` and ``written`` from a list."""
    if word in NO_PARTICIPLES or word in ALSO_VERBS:
        return False
    return word in IRREGULAR or (len(word) > 4 and word.endswith(("ed", "ing")))


def check_rule(rule: str, found: Iterable[str]) -> None:
    left = sorted(set(found) - KNOWN.get(rule, frozenset()))
    assert not left, "\n".join(left)


def check_number(what: str, found: Sequence[str] | int) -> None:
    number = found if isinstance(found, int) else len(found)
    names = "" if isinstance(found, int) else "\n".join(["", *sorted(found)])
    assert number <= AT_MOST[what], f"{number} {what}, and at most {AT_MOST[what]} are allowed{names}"


@cache
def find_importers() -> dict[str, set[str]]:
    """The modules that import each module of the package, inside functions too."""
    modules = {to_module(path) for path in list_files()}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for path in list_files():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules else node.module for name in inner]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in modules.intersection(names):
                importers[name].add(to_module(path))
    return importers


def to_module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_the_lines_of_code_only_become_less() -> None:
    lines = {path: count_lines(path) for path in list_files()}
    check_number("lines of code", sum(lines.values()))
    core = sum(count for path, count in lines.items() if path.relative_to(SOURCE).parts[0] in CORE)
    check_number("lines of code of the core", core)


def test_the_path_of_a_session_and_a_run_only_becomes_shorter() -> None:
    check_number("lines of the path of a session and a run", sum(count_path.count_path().values()))


def test_an_idea_passes_few_functions_from_the_door_to_the_first_step() -> None:
    check_number("functions that an idea passes from the door to the first step", count_walk.list_walk()[0])


def test_a_file_has_its_name_for_itself() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in list_files():
        if path.stem not in ("__init__", "__main__"):
            homes[path.name].append(to_name(path))
    check_number(
        "files that share their name", [name for names in homes.values() if len(names) > 1 for name in names]
    )


def test_a_module_of_a_few_lines_is_part_of_the_one_that_imports_it() -> None:
    small = {to_module(path) for path in list_files() if count_lines(path) < FEW_LINES}
    importers = find_importers()
    check_number(
        "modules of a few lines with one importer",
        [name for name in small if len(importers[name]) == 1 and name.count(".") > 1],
    )


def test_what_is_looped_over_has_a_name() -> None:
    loops = [
        to_name(path) for path in list_files() for _ in re.findall(r"\bfor one in\b", path.read_text("utf-8"))
    ]
    check_number("loops over `one`", loops)


def test_no_class_name_stands_for_two_things() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in list_files():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(to_name(path))
    twice = {name for name, files in homes.items() if len(files) > 1} - KNOWN["classes"]
    assert not twice, "\n".join(f"{name}: {', '.join(homes[name])}" for name in sorted(twice))


def test_no_public_function_is_named_by_a_participle() -> None:
    check_rule(
        "participles",
        (
            function.where
            for function in list_functions()
            if function.is_public
            and not function.is_attribute
            and function.name not in CALLED_BY_OTHERS
            and is_participle(function.name.split("_")[0])
            and function.name not in NOUNS
        ),
    )


def test_a_public_function_begins_with_a_verb() -> None:
    """Methods are read with what they belong to, and commands are named by their words on the command line."""
    check_rule(
        "verbs",
        (
            function.where
            for function in list_functions()
            if function.is_public
            and not function.owner
            and not function.file.startswith("cli/commands/")
            and function.name not in NOUNS
            and function.name.split("_")[0] not in VERBS
        ),
    )


def test_the_docstring_of_a_function_begins_with_a_verb() -> None:
    found: list[str] = []
    for function in list_functions():
        docstring = ast.get_docstring(function.node)
        if docstring is None or function.is_attribute or function.name in NOUNS:
            continue
        first = re.match(r"\w*", docstring)
        if first is None or first[0].lower() not in VERBS | ALSO_IN_DOCSTRINGS:
            found.append(f"{function.where}: {docstring[:40]}")
    check_rule("docstrings", found)


@pytest.mark.parametrize("word", ["kept", "told", "written", "described", "explaining", "sent"])
def test_a_participle_is_recognised(word: str) -> None:
    assert is_participle(word)


@pytest.mark.parametrize("word", ["read", "feed", "run", "set", "string", "list", "embed"])
def test_a_verb_is_no_participle(word: str) -> None:
    assert not is_participle(word)


def test_every_reference_of_a_docstring_leads_to_something() -> None:
    pattern = re.compile(r":(?:class|func|meth|attr|data|mod):`~?(bactrian\.[\w.]+)`")
    named = {name for path in SOURCE.rglob("*.py") for name in pattern.findall(path.read_text("utf-8"))}
    assert len(named) > 10
    assert [name for name in sorted(named) if not resolve(name)] == []


def resolve(name: str) -> bool:
    """Tell whether a dotted name is that of a module, or of something in one."""
    parts = name.split(".")
    place = max(count for count in range(1, len(parts) + 1) if is_module(".".join(parts[:count])))
    found: object = import_module(".".join(parts[:place]))
    for part in parts[place:]:
        if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
            return False
        found = getattr(found, part, None)
    return True


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module and no package
        return False
