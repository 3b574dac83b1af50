"""A kind of job that another package registers works as the built-in ones do."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from bactrian.store import open_store
from tests.helpers.command import Command, clean_environment
from tests.helpers.packages import install

CODE = (Path(__file__).parents[1] / "data" / "acme_stories.py").read_text("utf-8")
RECIPE = """
name = "stories"
[[axes]]
name = "hero"
count = 2
given = ["the goat", "the moon"]
[story]
plot = "Tell of {{ hero }}."
moods = { sad = "Everybody weeps.", merry = "Everybody laughs." }
"""
JOBS = ["001_001", "001_002", "002_001", "002_002"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    install(tmp_path, "acme_stories", CODE, "bactrian.jobs", "story = acme_stories:StoryJobs")
    (tmp_path / "stories.toml").write_text(RECIPE)
    (tmp_path / "script.json").write_text(json.dumps({"teller": ["Once."]}))
    return tmp_path


def start(folder: Path, *words: str) -> Command:
    return Command(words, folder, clean_environment(PYTHONPATH=str(folder)))


async def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    out, err = await process.communicate()
    return process.wait(), out.decode(), err.decode()


GENERATE = ("generate", "stories.toml", "--run", "stories.db", "--model", "scripted:script.json", "--json")


def notes(folder: Path) -> Counter[str]:
    path = folder / "notes.txt"
    return Counter(path.read_text().splitlines() if path.exists() else ())


async def test_a_killed_run_goes_on_where_each_of_its_jobs_was(folder: Path) -> None:
    process = start(folder, *GENERATE)
    waiting = {f"{job} waits" for job in JOBS[1:]} | {"001_001 ended"}
    while not waiting <= notes(folder).keys():
        assert process.returncode is None
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    (folder / "go").touch()

    code, out, err = await run(folder, *GENERATE)
    assert code == 0, err
    last = json.loads(out.splitlines()[-1])
    assert (last["done"], last["endings"]) == (4, {"told": 4})
    told = {line: times for line, times in notes(folder).items() if "chapter" in line}
    assert told == {f"{job} chapter {number}": 1 for job in JOBS for number in (1, 2)}
    async with open_store(folder / "stories.db", read_only=True) as store:
        sessions = [session async for session in store.sessions()]
    assert [session.id for session in sessions] == JOBS
    assert sessions[3].values == {"hero": "the moon", "mood": "merry"}
    assert sessions[3].task.original == "Tell of the moon. Everybody laughs."
    assert all(len(session.turns) == 2 for session in sessions)


async def test_it_is_forecast_by_what_it_says_it_takes(folder: Path) -> None:
    code, out, err = await run(folder, *GENERATE, "--forecast", "--set", "story.chapters=3")
    assert code == 0, err
    forecast = json.loads(out)
    assert (forecast["sessions"], forecast["calls"]["value"]) == (4, 12)


async def test_its_keys_can_be_set_and_are_part_of_the_plan(folder: Path) -> None:
    (folder / "go").touch()
    code, _, err = await run(folder, *GENERATE, "--limit", "1", "--set", 'moods.sad="All weep."')
    assert code == 0, err
    code, _, err = await run(folder, *GENERATE, "--set", "chapters=3")
    assert code == 2
    assert "recipe.story.chapters: 2 → 3" in err
    assert "recipe.story.moods.sad: 'All weep.' → 'Everybody weeps.'" in err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("plot =", "plto =", "stories.toml:8:1: Unknown key 'plto'. Did you mean 'plot'"),
        ("{{ hero }}", "{{ heron }}", "stories.toml:8:1: 'plot', line 1, uses the placeholder 'heron'"),
        (
            'name = "hero"',
            'name = "star"',
            "stories.toml:4:1: axes.star.name: a story has an axis named hero",
        ),
        ("[story]", '[critic]\nrole = "x"\n[story]', "critic: a recipe with [story] cannot have one"),
        ("[story]", '[society]\nfile = "x"\ntask = "x"\n[story]', "[society] and [story]"),
    ],
)
async def test_faults_of_its_recipes_have_their_place(folder: Path, old: str, new: str, says: str) -> None:
    (folder / "stories.toml").write_text(RECIPE.replace(old, new))
    code, _, err = await run(folder, *GENERATE)
    assert (code, says in err) == (2, True), err


async def test_a_setting_that_it_does_not_know_is_told_its_nearest(folder: Path) -> None:
    code, _, err = await run(folder, *GENERATE, "--set", "story.chaptres=3")
    assert (code, "Did you mean 'story.chapters'" in err) == (2, True), err


async def test_it_is_shown_and_in_the_schema(folder: Path) -> None:
    code, out, _ = await run(folder, "recipes", "show", "stories.toml")
    assert (code, out) == (0, RECIPE)
    code, out, _ = await run(folder, "recipes", "--schema")
    assert code == 0
    assert "story" in json.loads(out)["properties"]


async def test_without_its_package_its_recipes_are_refused_and_others_work(folder: Path) -> None:
    (folder / "acme_stories.py").write_text("import a_module_that_is_gone")
    code, _, err = await run(folder, *GENERATE)
    assert code == 2
    assert "'story' under 'bactrian.jobs', cannot be loaded: ModuleNotFoundError" in err
    code, out, _ = await run(folder, "recipes")
    assert (code, "ai-society" in out) == (0, True)
