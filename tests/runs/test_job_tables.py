"""Explicit jobs, from a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.errors import InputError
from bactrian.recipes.load import apply_job_table, load_recipe, read_job_table
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import generate, said, stored

ROWS = [
    {"assistant": "Chef", "user": "Pilot", "idea": "Bake bread, and eat it"},
    {"assistant": "Nurse", "user": "Chef", "idea": "Dress a wound"},
    {"assistant": "Chef", "user": "Nurse", "idea": "Boil “soup”"},
]


def write_csv(path: Path, mark: str = ",", start: str = "") -> Path:
    lines = [mark.join(ROWS[0]), *(mark.join(f'"{value}"' for value in row.values()) for row in ROWS)]
    path.write_text(start + "\r\n".join(lines) + "\r\n\r\n", "utf-8")
    return path


def write_lines(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


async def test_each_row_is_a_job_and_the_same_command_goes_on(folder: Path) -> None:
    write_csv(folder / "jobs.csv", start="\ufeff")
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--jobs", "jobs.csv", "--limit", "2")
        assert code == 0, err
        assert len(await stored(folder)) == 2
        code, lines, _ = await generate(folder, endpoint, "--jobs", "jobs.csv", "--forecast", "--json")
        assert lines[0]["sessions"] == 1
        code, _, err = await generate(folder, endpoint, "--jobs", "jobs.csv")
        assert code == 0, err
    made = {
        session.id: (session.assistant.name, session.user.name, session.task.original)
        for session in await stored(folder)
    }
    assert made == {f"00{number}": tuple(row.values()) for number, row in enumerate(ROWS, start=1)}
    assert [dict(session.values) for session in await stored(folder)] == ROWS


async def test_another_table_is_another_plan(folder: Path) -> None:
    write_csv(folder / "jobs.csv")
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--jobs", "jobs.csv", "--limit", "1")
        (folder / "jobs.csv").write_text("assistant,user,idea\nChef,Pilot,Something else\n")
        code, _, err = await generate(folder, endpoint, "--jobs", "jobs.csv")
    assert code == 2
    assert "another plan" in err
    assert len(await stored(folder)) == 1


def test_axes_are_columns_too(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("programming_language,domain,task\nJava,Law,Count words\n")
    recipe = apply_job_table(load_recipe("code"), read_job_table(path))
    assert recipe.size == 1
    assert recipe.axes[0].columns == ("programming_language", "domain", "task")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_semicolons_and_tabs_divide_as_well(tmp_path: Path, mark: str) -> None:
    table = read_job_table(write_csv(tmp_path / "jobs.csv", mark))
    assert table.rows == tuple(tuple(row.values()) for row in ROWS)
    assert table == read_job_table(write_csv(tmp_path / "jobs.csv", ",")), "the mark is not part of the table"
    assert read_job_table(write_lines(tmp_path / "jobs.jsonl")).rows == table.rows


BAD = {
    "": "no jobs",
    "assistant,user,idea\n": "no jobs",
    "assistant,user\na,b\n": "no column 'task'",
    "assistant,user,idea,colour\na,b,c,d\n": "'colour' is not an axis",
    "assistant,user,idea\na,b,c\nx,y,z\n a ,b,c\n": "Line 4 and line 2 are the same job",
    "assistant,user,idea\na,b\n": "Line 2 has 2 values",
    "assistant,user,idea\na,,c\n": "'user' is empty",
    "assistant,user,user\na,b,c\n": "twice",
    'assistant,user,idea\na,b,"c\n': "Line 2",
    "assistant,user,idea\na,b,c\0\n": "line 2",
    "assistant,user,idea\na,b," + "x" * 200_000 + "\n": "Line 2: field larger",
}


@pytest.mark.parametrize(("text", "what"), BAD.items(), ids=[str(number) for number in range(len(BAD))])
def test_a_bad_table_is_told_with_its_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        apply_job_table(load_recipe("ai-society"), read_job_table(path))
    assert what.lower() in told.value.what.lower()
    assert told.value.next


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "{",
        "{}",
        "7",
        '{"assistant": "a", "user": "b", "idea": 3}',
        '{"assistant": "a", "user": "b", "idea": null}',
    ],
)
def test_a_bad_line_of_json_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n\n" + line + "\n")
    with pytest.raises(InputError, match="(?i)line 3"):
        read_job_table(path)


@pytest.mark.parametrize("kind", ["missing", "folder", "latin", "huge"])
def test_a_file_that_cannot_be_a_table_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "jobs.csv"
    match kind:
        case "folder":
            path.mkdir()
        case "latin":
            path.write_bytes("assistant,user,idea\nKöchin,b,c\n".encode("latin-1"))
        case "huge":
            with path.open("wb") as file:
                file.truncate(65 * 1024 * 1024)
        case _:
            pass
    with pytest.raises(InputError):
        read_job_table(path)


def test_a_translation_takes_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes no table"):
        apply_job_table(load_recipe("translate"), read_job_table(write_csv(tmp_path / "jobs.csv")))


@pytest.mark.parametrize("given", ["file", "rows"])
def test_python_takes_a_file_or_rows(tmp_path: Path, given: str) -> None:
    script = bt.Scripted({"task_specifier": ["Do it."], "user": ["<CAMEL_TASK_DONE>"]})
    jobs = write_lines(tmp_path / "jobs.jsonl") if given == "file" else ROWS
    run = bt.generate("ai-society", run=tmp_path / "run.db", model=script, jobs=jobs)
    assert [session.task.original for session in run] == [row["idea"] for row in ROWS]
    assert run.forecast().sessions == 0
