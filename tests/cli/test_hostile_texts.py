"""Nothing that others wrote steers a terminal, a page, a spreadsheet or a file system, whichever command shows it."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, asks
from tests.helpers.hostile import HOSTILE, find_steering, make_hostile_run

FORMATS = ("camel-chat", "camel-instructions", "messages", "sharegpt", "alpaca", "parquet", "hf", "csv")
COMMANDS = [
    ("analyze", "run.db"),
    ("analyze", "run.db", "--json"),
    ("analyze", "run.db", "run.db"),
    ("analyze", "run.db", "run.db", "--json"),
    ("failures", "run.db"),
    ("failures", "run.db", "--json"),
    ("verify", "run.db"),
    ("verify", "run.db", "--json"),
    ("verify", "broken.db"),
    ("recover", "run.db", "--out", "new.db"),
    *(("export", "run.db", "--format", form, "--out", f"{form}.out") for form in FORMATS),
    ("export", "run.db", "--format", "messages", "--out", "json.out", "--json"),
]
READERS = [
    ("runs", "."),
    ("runs", ".", "--json"),
    ("status", "run.db"),
    ("status", "run.db", "--json"),
    ("show", "run.db"),
    *(("show", "run.db", "--full", "--format", form) for form in ("text", "json", "markdown", "html")),
    ("show", "run.db", "no such"),
    ("resume", "run.db"),
    *(
        ("export", "run.db", "--format", form, "--out", f"{form}.out")
        for form in ("camel-science", "camel-translated", "camel-lists", "preference")
    ),
]
A_FEW = [
    ("analyze", "run.db"),
    ("failures", "run.db"),
    ("verify", "run.db", "--json"),
    ("show", "run.db"),
    ("export", "run.db", "--format", "messages", "--out", "messages.out"),
    ("export", "run.db", "--format", "csv", "--out", "csv.out"),
]
"""Commands that read what else a run can hold: all of them read it by the same functions."""
EVERYTHING = "\n".join(HOSTILE.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hostile run, and one whose turns are damaged."""
    folder = tmp_path_factory.mktemp("hostile")
    asyncio.run(make_hostile_run(folder / "run.db"))
    asyncio.run(make_hostile_run(folder / "broken.db"))
    with closing(sqlite3.connect(folder / "broken.db")) as connection, connection:
        connection.execute("UPDATE turns SET checksum = 1 WHERE number = 2")
    return folder


def check(folder: Path, *command: str) -> str:
    """Run a command, and check that its output steers nothing and that it did not crash; gives its standard output."""
    done = bactrian(*command, cwd=folder)
    output = done.stdout + done.stderr
    assert find_steering(output) == set()
    assert "Traceback" not in output
    return done.stdout


@pytest.mark.parametrize("command", [*COMMANDS, *READERS], ids=" ".join)
def test_a_hostile_run_steers_no_terminal(folder: Path, command: tuple[str, ...]) -> None:
    out = check(folder, *command)
    if "--json" in command and command[0] not in ("failures", "runs"):
        json.loads(out)


def test_what_json_escapes_is_the_same_text(folder: Path) -> None:
    failures = [json.loads(line) for line in check(folder, "failures", "run.db", "--json").splitlines()]
    assert {HOSTILE["ansi"], HOSTILE["bidi"]} <= {failure["reason"] for failure in failures}


class Page(HTMLParser):
    """The elements of a page that do something, and its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "a", "object", "embed", "link", "form"):
            self.active.append(tag)
        self.active += [
            f"{tag} {name}" for name, _ in attrs if name.startswith("on") or name in ("src", "href")
        ]


def test_the_report_of_a_hostile_run_does_nothing(folder: Path) -> None:
    check(folder, "analyze", "run.db", "run.db", "--report", "report.html", "--findings", "found.jsonl")
    text = (folder / "report.html").read_text("utf-8")
    page = Page()
    page.feed(text)
    assert page.active == []
    assert find_steering(text) == set()
    assert HOSTILE["html"] not in text


def test_no_hostile_name_leaves_the_folder_of_an_export(folder: Path) -> None:
    check(folder, "export", "run.db", "--format", "camel-chat", "--out", "chats")
    names = sorted(path.name for path in (folder / "chats").rglob("*"))
    assert len(names) == len(HOSTILE)
    assert all(len(name.encode()) <= 255 and name.endswith(".json") for name in names)
    assert find_steering("".join(names)) == set()
    assert not (folder.parent / "etc").exists()


def test_no_cell_of_a_hostile_table_is_a_formula(folder: Path) -> None:
    check(folder, "export", "run.db", "--format", "csv", "--out", "cells.csv")
    with (folder / "cells.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert any("HYPERLINK" in cell for cell in cells)
    assert [
        cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r")) or re.match(r"-\D", cell)
    ] == []


def test_the_header_of_a_hostile_card_is_its_own(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("polars")
    check(folder, "export", "run.db", "--format", "hf", "--out", "card", "--license", "x\nevil: 1\n---\n# no")
    _, header, text = (folder / "card" / "README.md").read_text("utf-8").split("---\n", 2)
    keys = {"pretty_name", "license", "language", "size_categories", "task_categories", "tags", "configs"}
    assert set(yaml.safe_load(header)) == keys
    assert find_steering(header + text) == set()
    assert "\n# Forged" not in text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_recipe_and_society_steer_no_terminal(tmp_path: Path, name: str) -> None:
    text = json.dumps(HOSTILE[name].encode("utf-8", "replace").decode()).replace("\\u0000", "")
    text = re.sub(r"\\u(d[89a-f]..)\\u(d[89a-f]..)", "x", text)
    (tmp_path / "recipe.toml").write_text(
        f"name = {text}\ndescription = {text}\n{RECIPE.partition('small')[2][1:]}", "utf-8"
    )
    for command in (
        ("recipes", "show", "recipe.toml"),
        ("generate", "recipe.toml", "--run", "r.db", "--forecast"),
    ):
        check(tmp_path, *command)


@pytest.mark.parametrize("flags", [(), ("--json",), ("--plan", "--critic", HOSTILE["ansi"])])
async def test_hostile_roles_and_replies_steer_no_terminal_in_a_session(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    hostile = EVERYTHING.replace("\0", "").encode("utf-8", "replace").decode()
    role = " ".join("".join(hostile.splitlines()).split())[:290]

    def reply(request: Received) -> Plan:
        whole = completion(f"Instruction: {EVERYTHING}\nInput: None", reasoning_content=EVERYTHING)
        return whole | {"model": EVERYTHING, "system_fingerprint": EVERYTHING}

    async with Endpoint([reply]) as endpoint:
        where = (
            "--model",
            "openai:any",
            "--base-url",
            endpoint.url,
            "--max-messages",
            "4",
            "--run",
            "run.db",
        )
        roles = ("--assistant", role, "--user", f"{role}!")
        command = ("play", hostile[:3000], *roles, *where, *flags)
        done = await asyncio.to_thread(lambda: bactrian(*command, cwd=tmp_path))
    assert done.stdout, done.stderr
    assert find_steering(done.stdout + done.stderr) == set()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=" ".join)
async def test_hostile_lists_replies_and_errors_steer_no_terminal_in_a_run(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    asked = 0

    def reply(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        if asked % 5 == 0:
            return Answer(
                {"error": {"message": EVERYTHING, "code": EVERYTHING}}, status=400 + 103 * (asked % 2)
            )
        if asks(request) == "lister":
            return completion("\n".join(f"{n}. {text!s}" for n, text in enumerate(HOSTILE.values(), start=1)))
        return completion(EVERYTHING) | {
            "model": f"{EVERYTHING}{asked % 3}",
            "system_fingerprint": EVERYTHING,
        }

    async with Endpoint([reply]) as endpoint:
        where = ("--model", "openai:any", "--base-url", endpoint.url, "--run", "run.db")
        done = await asyncio.to_thread(
            lambda: bactrian("generate", "small.toml", *where, *flags, cwd=tmp_path)
        )
    assert find_steering(done.stdout + done.stderr) == set()
    assert "Traceback" not in done.stderr
    for command in A_FEW:
        check(tmp_path, *command)


@pytest.mark.parametrize("flags", [(), ("--json",), ("--names",)], ids=" ".join)
async def test_hostile_roles_that_a_model_suggests_steer_no_terminal(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    reply = "\n".join(
        f"Role: {text}\nDescription: {text}\nCompetencies: {text}"
        for text in (*HOSTILE.values(), "Cook", "Baker")
    )
    async with Endpoint([completion(reply)]) as endpoint:
        where = ("--model", "openai:any", "--base-url", endpoint.url)
        task = HOSTILE["bidi"] + HOSTILE["c1"]
        out = await asyncio.to_thread(check, tmp_path, "roles", task, *where, *flags)
    assert out


def test_hostile_chats_are_imported_and_steer_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "chats").mkdir()
    for number, text in enumerate(HOSTILE.values()):
        name = text.encode("utf-8", "replace").decode().replace("/", "").replace("\0", "")[:60]
        chat = {
            "role_1": f"{text}_RoleType.ASSISTANT",
            "role_2": f"{text}_RoleType.USER",
            "id": text,
            "original_task": text,
            "message_1": {"role_type": "USER", "role_name": text, "role": "user", "content": text},
            "message_2": {"role_type": "ASSISTANT", "role_name": text, "role": "user", "content": text},
            "termination_reason": text,
            "num_messages": 2,
        }
        (tmp_path / "chats" / f"{number}{name}.json").write_text(json.dumps(chat))
        (tmp_path / "chats" / f"{number}{name}broken.json").write_text('{"role_1": "x"}')
    out = check(tmp_path, "import", "chats", "--run", "run.db")
    assert f"{len(HOSTILE)} skipped" in out
    check(tmp_path, "import", "chats", "--run", "again.db", "--json")
    for command in A_FEW:
        check(tmp_path, *command)


def test_a_provider_s_hostile_row_steers_no_terminal(tmp_path: Path) -> None:
    rows = tmp_path / "providers.toml"
    for text in HOSTILE.values():
        written = "".join(
            f"\\U{ord(character):08x}"
            for character in text.encode("utf-8", "replace").decode()
            if character != "\0"
        )
        rows.write_text(
            f'[[providers]]\nname = "{written}"\naddress = "http://{written}"\nkey = "{written}"\n'
        )
        done = bactrian("models", cwd=tmp_path, BACTRIAN_CONFIG=str(tmp_path))
        assert done.returncode == 2
        assert find_steering(done.stdout + done.stderr) == set()


def test_lines_of_a_megabyte_are_shown_and_exported(tmp_path: Path) -> None:
    content = "=" + "<b>\x1b[31m" * 100_000
    messages = [{"role": "user", "content": "Draw lines."}, {"role": "assistant", "content": content}]
    (tmp_path / "big.jsonl").write_text(json.dumps({"messages": messages}))
    check(tmp_path, "import", "big.jsonl", "--run", "run.db")
    for command in A_FEW:
        check(tmp_path, *command)
