"""Tools from the command line: in `play`, in a recipe and in a society."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import bactrian, events

ASK = "Instruction: Add two and three.\nInput: None"
CALL = 'Call: add {"a": 2, "b": 3}'
ANSWER = "Solution: It is 5.\nNext request."
DONE = "<CAMEL_TASK_DONE>"
TOOLS = 'def add(a: int, b: int) -> int:\n    "Add two numbers."\n    return a + b\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "calc.py").write_text(TOOLS)
    script(tmp_path, user=[ASK, DONE], assistant=[CALL, ANSWER])
    return tmp_path


def script(folder: Path, **lines: list[str]) -> None:
    (folder / "script.json").write_text(json.dumps(lines))


PLAY = ("play", "sums", "--model", "scripted:script.json", "--no-specify")


def test_play_shows_calls_and_results_as_json_lines(folder: Path) -> None:
    done = bactrian(*PLAY, "--tools", "calc.py", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    shown = events(done.stdout)
    assert [line["event"] for line in shown] == [
        "started",
        "spoke",
        "called",
        "returned",
        "spoke",
        "spoke",
        "ended",
    ]
    assert (shown[2]["name"], shown[2]["arguments"], shown[2]["turn"]) == ("add", {"a": 2, "b": 3}, 2)
    assert (shown[3]["text"], shown[3]["problem"]) == ("5", None)


RUDE = """
import ctypes, os, subprocess, sys
os.write(1, b"at import\\n"); os.chdir("/")

def add(a: int, b: int) -> int:
    "Add two numbers."
    os.write(1, b"raw\\n"); print("printed"); print("past", file=sys.__stdout__, flush=True)
    subprocess.run(["echo", "child"]); ctypes.CDLL(None).puts(b"libc")
    os.chdir("/"); os.umask(0)
    return a + b

async def wait(a: int, b: int) -> int:
    "Add two numbers."
    os.chdir("/")
    return a + b
"""


@pytest.mark.system
@pytest.mark.parametrize("name", ["add", "wait"])
def test_a_tool_writes_no_line_of_the_data_and_moves_no_file(folder: Path, name: str) -> None:
    (folder / "calc.py").write_text(RUDE)
    script(folder, user=[ASK, DONE], assistant=[CALL.replace("add", name), ANSWER])
    flags = ("--tools", "calc.py", "--json", "--run", "a.db", "--out", "a.json")
    done = bactrian(*PLAY, *flags, cwd=folder, own_process=True)
    assert done.returncode == 0, done.stderr
    assert [line["event"] for line in events(done.stdout)][-1] == "ended"
    assert "at import" in done.stderr
    assert name == "wait" or {"raw", "printed", "past", "child"} <= set(done.stderr.split())
    assert {"a.db", "a.json"} <= {path.name for path in folder.iterdir()}
    assert not Path("/a.json").exists()


@pytest.mark.slow
def test_a_command_that_is_refused_runs_no_tool(folder: Path) -> None:
    marker = "from pathlib import Path\nPath('ran').touch()\n"
    (folder / "calc.py").write_text(TOOLS)
    (folder / "r.toml").write_text(RECIPE)
    generate = ("generate", "r.toml", "--run", "a.db", "--model", "scripted:script.json")
    assert bactrian(*generate, cwd=folder).returncode == 0
    (folder / "calc.py").write_text(marker + TOOLS)
    (folder / "other.toml").write_text(RECIPE.replace("[[axes]]", '[[axes]]\nsource = "nowhere"', 1))
    (folder / "club.toml").write_text(SOCIETY)
    (folder / "damaged.db").write_bytes(b"no run" * 100)
    unread = ("--run", "damaged.db")
    play, society = (*PLAY, "--tools", "calc.py"), ("play", "--society", "club.toml", *PLAY[2:4])
    alone = ("play", "sums", "--embodied", "Clerk", "--yes", *play[2:4], *play[5:])
    others = (
        ("generate", "other.toml", "--run", "b.db", *PLAY[2:4]),
        *(
            (*command, *flags)
            for command in (play, society, alone)
            for flags in (unread, ("--model", "nothing:x"), ("--model", "scripted:none.json"))
        ),
        (*play, "--language", "x" * 500),
        (*society, "--language", "x" * 500),
        (*play, "--user", " "),
    )
    refusals = (("--seed", "9"), ("--budget", "nan"), ("--set", "x.y=1"), ("--model", "nothing:x"))
    for command in (*((*generate, *flags) for flags in refusals), *others):
        done = bactrian(*command, cwd=folder)
        assert done.returncode in (1, 2), (command, done.stderr)
        assert not (folder / "ran").exists(), command
    # A run that is there stays, and a refused command leaves no new one.
    refused = ("--model", "nothing:x", "--run")
    ask = ("evaluate", "humaneval", "--limit", "1")
    for command in ((*play[:2], *refused), ("generate", "r.toml", *refused), (*society[:3], *refused)):
        for name in ("a.db", "new.db"):
            assert bactrian(*command, name, cwd=folder).returncode == 2
    assert bactrian(*ask, *refused, "new.db", cwd=folder).returncode == 2
    assert not list(folder.glob("new*"))
    assert json.loads(bactrian("status", "a.db", "--json", cwd=folder).stdout)["sessions"] == 2


def test_play_shows_calls_and_results_to_a_person(folder: Path) -> None:
    done = bactrian(*PLAY, "--tools", "calc.py:add", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert 'calls add {"a": 2, "b": 3}' in done.stdout
    assert "add says" in done.stdout


def test_the_other_side_can_have_the_tools(folder: Path) -> None:
    script(folder, user=[CALL, ASK, DONE], assistant=[ANSWER])
    done = bactrian(*PLAY, "--tools", "calc.py", "--set", "tools.agent=user", "--json", cwd=folder)
    called = [line for line in events(done.stdout) if line["event"] == "called"]
    assert [(line["speaker"], line["turn"]) for line in called] == [("user", 1)]


def test_a_stored_session_is_shown_again_and_runs_nothing(folder: Path) -> None:
    noisy = TOOLS.replace("    return", '    open("ran.txt", "a").write("x")\n    return')
    (folder / "calc.py").write_text(noisy)
    command = (*PLAY, "--tools", "calc.py", "--run", "a.db", "--json")
    first = bactrian(*command, cwd=folder)
    again = bactrian(*command, cwd=folder)
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert [line["event"] for line in events(again.stdout)] == ["started", "spoke", "spoke", "spoke", "ended"]
    assert (folder / "ran.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ("none.py", "no such Python file"),
        ("calc.py:sub", "no function 'sub'"),
        ("bad.py", "cannot be run"),
        ("untyped.py", "no type"),
    ],
)
def test_a_file_that_cannot_be_used_is_wrong_usage_without_a_traceback(
    folder: Path, tools: str, problem: str
) -> None:
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "untyped.py").write_text('def f(x):\n    "Something."\n')
    done = bactrian(*PLAY, "--tools", tools, cwd=folder)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


RECIPE = """
name = "sums"

[[axes]]
name = "task"
count = 2
given = ["sums", "more sums"]

[role_play]
assistant = "Clerk"
user = "Cook"
idea = "{{ task }}"
specify = false

[tools]
python = "calc.py"
seconds = 5
"""


def generated(folder: Path, *more: str) -> Any:
    return bactrian(
        "generate", "recipes/sums.toml", "--model", "scripted:script.json", "--run", "a.db", *more, cwd=folder
    )


def test_a_recipe_gives_tools_from_a_file_beside_it(folder: Path) -> None:
    (folder / "recipes").mkdir()
    (folder / "calc.py").rename(folder / "recipes" / "calc.py")
    (folder / "recipes" / "sums.toml").write_text(RECIPE)
    done = generated(folder, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(bactrian("analyze", "a.db", "--json", cwd=folder).stdout)
    assert report["tools"] == {"add": {"calls": 2, "problems": {}}}
    assert generated(folder).returncode == 0
    (folder / "recipes" / "calc.py").write_text(TOOLS.replace("Add two numbers", "Sum two numbers"))
    changed = generated(folder)
    assert changed.returncode == 2
    assert "tools.assistant.add" in changed.stderr


def test_a_setting_gives_a_recipe_tools(folder: Path) -> None:
    (folder / "recipes").mkdir()
    (folder / "recipes" / "sums.toml").write_text(RECIPE.partition("[tools]")[0])
    done = generated(folder, "--set", "tools.python=../calc.py", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(bactrian("analyze", "a.db", "--json", cwd=folder).stdout)
    assert report["tools"]["add"]["calls"] == 2


SOCIETY = """
name = "club"
task = "Sums"

[[agents]]
name = "host"
role = "Host"
prompt = "Ask about {{ task }}"

[[agents]]
name = "clerk"
role = "Clerk"
prompt = "Answer: {{ task }}"
tools = { python = "calc.py" }

[[agents]]
name = "cook"
role = "Cook"
prompt = "Listen: {{ task }}"

[[stages]]
name = "talk"
agents = ["host", "clerk", "cook"]
max_messages = 5

[[stages]]
name = "work"
user = "cook"
assistant = "clerk"
"""


def test_an_agent_of_a_society_has_its_tools_in_talks_and_in_role_plays(folder: Path) -> None:
    (folder / "club.toml").write_text(SOCIETY)
    script(
        folder,
        host=["What is two and three?", "And again?"],
        clerk=[CALL, "It is 5.", "Still 5."],
        cook=["I see."],
        user=[ASK, DONE],
        assistant=[CALL, ANSWER],
    )
    done = bactrian(
        "play",
        "--society",
        "club.toml",
        "--model",
        "scripted:script.json",
        "--json",
        "--run",
        "a.db",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    shown = [line for line in events(done.stdout) if line["event"] in ("called", "returned", "spoke")]
    assert [(line["event"], line["speaker"]) for line in shown] == [
        ("spoke", "host"),
        ("called", "clerk"),
        ("returned", "clerk"),
        ("spoke", "clerk"),
        ("spoke", "cook"),
        ("spoke", "host"),
        ("spoke", "clerk"),
        ("spoke", "user"),
        ("called", "assistant"),
        ("returned", "assistant"),
        ("spoke", "assistant"),
        ("spoke", "user"),
    ]
    assert [line["text"] for line in shown if line["event"] == "returned"] == ["5", "5"]


def test_a_run_of_societies_has_their_tools(folder: Path) -> None:
    (folder / "club.toml").write_text(
        SOCIETY.partition("[[stages]]")[0] + SOCIETY[SOCIETY.rindex("[[stages]]") :]
    )
    (folder / "many.toml").write_text(
        RECIPE.partition("[role_play]")[0] + '[society]\nfile = "club.toml"\ntask = "{{ task }}"\n'
    )
    done = bactrian(
        "generate", "many.toml", "--model", "scripted:script.json", "--run", "a.db", "--json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(bactrian("analyze", "a.db", "--json", cwd=folder).stdout)
    assert report["tools"] == {"add": {"calls": 2, "problems": {}}}


def test_what_tools_print_is_kept_out_of_the_data(folder: Path) -> None:
    (folder / "calc.py").write_text(
        'print("loading")\n'
        + TOOLS.replace("    return", '    print("adding")\n    return')
        + 'async def wait() -> str:\n    "Wait."\n    print("waiting")\n    return "so"\n'
    )
    script(folder, user=[ASK, DONE], assistant=[f"{CALL}\nCall: wait {{}}", ANSWER])
    done = bactrian(*PLAY, "--tools", "calc.py", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [line["text"] for line in events(done.stdout) if line["event"] == "returned"]
    assert all(word in done.stderr for word in ("loading", "adding", "waiting"))
