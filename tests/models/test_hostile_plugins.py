"""Installed packages whose entry point does what it should not, when it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bactrian.analyze.behaviours import find_behaviours, find_installed
from bactrian.errors import InputError, ModelError
from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.formats import find_format
from bactrian.files.plugins import load_plugin
from bactrian.models.open import ModelOptions, open_model
from bactrian.recipes.load import load_recipe
from bactrian.recipes.schema import RolePlay
from bactrian.roleplay.chosen_endings import read_endings
from bactrian.store import open_store
from tests.helpers.command import clean_environment
from tests.helpers.packages import install
from tests.helpers.runs import make_run, session

GROUP = "bactrian.models"
CODES = {
    "raises": "raise KeyError('no')",
    "exits": "raise SystemExit(0)",
    "lacks": "pass",
    "broken": "def (",
    "number": "begin = 7",
    "returns": "def begin(model, options):\n    return 7",
    "leaves": "def begin(model, options):\n    raise SystemExit(0)",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("name", CODES)
def test_a_model_of_a_package_that_cannot_be_used_is_wrong_usage(folder: Path, name: str) -> None:
    install(folder, f"acme_{name}", CODES[name], GROUP, f"acme{name} = acme_{name}:begin")
    with pytest.raises(InputError, match=f"acme{name}"):
        open_model(f"acme{name}:m", ModelOptions())


def test_one_name_of_two_packages_is_refused(folder: Path) -> None:
    for number in (1, 2):
        install(folder, f"acme_double{number}", "begin = print", GROUP, f"double = acme_double{number}:begin")
    with pytest.raises(InputError, match="Two installed packages register 'double'"):
        load_plugin(GROUP, "double")


def test_a_package_takes_no_name_of_a_built_in_part(folder: Path) -> None:
    """Nothing of it is executed: its module is never imported."""
    names = {
        "models": ("openai", "scripted", "local"),
        "behaviours": ("role_flip", "code_fails"),
        "export_formats": ("csv",),
        "jobs": ("role_play",),
        "endings": ("task_done",),
    }
    for group, parts in names.items():
        for part in parts:
            install(
                folder, f"evil_{part}", "begin = print", f"bactrian.{group}", f"{part} = evil_{part}:begin"
            )
    assert not find_installed()
    assert open_model("openai:m", ModelOptions()).name == "openai:m"
    assert find_format("csv").name == "csv"
    assert read_endings("task_done")[0]
    assert isinstance(load_recipe("ai-society").job, RolePlay)
    assert not [name for name in sys.modules if name.startswith("evil_")]


def test_what_a_package_prints_when_it_is_loaded_is_no_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(folder, "acme_loud", "print('loaded')\nbegin = print", GROUP, "loud = acme_loud:begin")
    load_plugin(GROUP, "loud")
    assert capsys.readouterr() == ("", "loaded\n")


LOUD = """
import atexit
import os
import sys

def write():
    os.write(1, b"loud\\n")
    os.system("echo loud")
    sys.__stdout__.write("loud\\n")
    print("loud")

atexit.register(write)
write()
raise RuntimeError("one line\\nok: another line")
"""


@pytest.mark.system
def test_nothing_that_a_module_of_a_package_writes_reaches_standard_output(tmp_path: Path) -> None:
    install(tmp_path, "acme_writes", LOUD, GROUP, "acmewrites = acme_writes:begin")
    done = subprocess.run(
        [sys.executable, "-m", "bactrian", "play", "tea", "-m", "acmewrites:m", "--json"],
        env=clean_environment(PYTHONPATH=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("loud\n") == 8
    assert "one line ok: another line" in done.stderr


DETECTORS = {
    "fails": "raise RuntimeError('one line\\nanother')",
    "exits": "raise SystemExit(0)",
    "number": "return [7]",
    "nowhere": "return [Finding(session.id, 99, 'x', 1.0, '')]",
    "elsewhere": "return [Finding('another', 1, 'x', 1.0, '')]",
    "half a character": "return [Finding(session.id, 1, 'x', 1.0, chr(0xD800))]",
}


@pytest.mark.parametrize("what", DETECTORS)
async def test_a_behaviour_of_a_package_that_does_what_it_should_not_is_named(
    folder: Path, what: str
) -> None:
    name = f"acme_finds_{what.replace(' ', '_')}"
    code = f"""
from bactrian.records.run import Finding
class Behaviour:
    "A behaviour."
    def detect(self, session):
        {DETECTORS[what]}
"""
    install(folder, name, code, "bactrian.behaviours", f"{name}_found = {name}:Behaviour")
    with pytest.raises(InputError, match=f"'{name}_found' failed in session s") as error:
        find_behaviours(session("s"))
    assert "\n" not in error.value.what


async def test_a_behaviour_of_a_package_cannot_pass_for_a_built_in_one(folder: Path) -> None:
    code = """
from bactrian.records.run import Finding
class Behaviour:
    "A behaviour."
    def detect(self, session):
        return [Finding(session.id, 1, "role_flip", 1.0, "")]
"""
    install(folder, "acme_flip", code, "bactrian.behaviours", "acmeflip = acme_flip:Behaviour")
    assert {found.behaviour for found in find_behaviours(session("s"), ())} == {"acmeflip"}


FORMATS = {
    "raises": "raise RuntimeError",
    "exits": "raise SystemExit(0)",
    "adds": "yield lambda sample: sample.nothing",
    "counts": "path.touch(); yield lambda sample: -5",
    "words": "path.touch(); yield lambda sample: 'many'",
    "leaves": "yield lambda sample: 1",
    "links": "path.symlink_to('/etc/passwd'); yield lambda sample: 1",
}


@pytest.mark.parametrize("name", FORMATS)
async def test_a_format_of_a_package_that_does_what_it_should_not_writes_nothing(
    folder: Path, name: str
) -> None:
    code = f"""
from contextlib import contextmanager
from bactrian.export.format import Format
@contextmanager
def begin(path, context):
    {FORMATS[name]}
    yield
FORM = Format("acme{name}", begin, ".x")
"""
    install(
        folder, f"acme_form_{name}", code, "bactrian.export_formats", f"acme{name} = acme_form_{name}:FORM"
    )
    run = await make_run(folder / "tea.db", [session("s")])
    async with open_store(run, read_only=True) as store:
        options = ExportOptions(find_format(f"acme{name}"), folder / "out.x")
        with pytest.raises(InputError, match=f"'acme{name}' failed"):
            await export_run(store, options)
    assert not [path for path in folder.iterdir() if "out.x" in path.name]


async def test_a_model_of_a_package_that_fails_when_it_is_closed_is_named(folder: Path) -> None:
    code = """
class Model:
    name = "acme"
    async def close(self):
        raise RuntimeError("no")
def begin(model, options):
    return Model()
"""
    install(folder, "acme_close", code, GROUP, "acmeclose = acme_close:begin")
    with pytest.raises(ModelError, match="when it was closed: RuntimeError: no"):
        await open_model("acmeclose:m", ModelOptions()).close()
