"""Embodied agents: they act by Python that they write, in a sandbox, alone and inside a role-play."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.protocol.fences import RESULTS, find_blocks, insert_record, split_blocks
from bactrian.roleplay.embodied import KeptFiles, Workbench
from bactrian.roleplay.tools import BadArguments
from tests.helpers.command import Command, bactrian, clean_environment, events
from tests.helpers.sandbox import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.system]

SHOP = '''
from pathlib import Path
PRICES = {"tea": 3.5, "coffee": 6.2}
def price(item: str) -> float:
    """Tell the price of tea or coffee, in euros."""
    with Path("asked.txt").open("a") as file:
        file.write(item + "\\n")
    return PRICES[item]
'''
IDEA = "Find out what tea and coffee cost together"
ALONE = ("play", IDEA, "--embodied", "Buyer", "--tools", "shop.py", "--run", "shop.db")


def block(code: str) -> str:
    return f"I do this because it helps.\n\n```python\n{code}\n```"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def write_script(folder: Path, **lines: list[str]) -> str:
    (folder / "script.json").write_text(json.dumps(lines))
    return "scripted:script.json"


def test_blocks_act_see_their_results_and_keep_their_names_and_files(folder: Path) -> None:
    replies = [
        block("total = price('tea') + price(item='coffee')\nopen('total.txt', 'w').write('sum')"),
        block("print('so far', total)\nprice('gold')"),
        "Together they cost 9.7 euros.",
    ]
    done = bactrian(*ALONE, "--model", write_script(folder, assistant=replies), "--yes", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = events(done.stdout)
    called = [event for event in told if event["event"] == "called"]
    assert [event["name"] for event in called] == ["python", "python"]
    assert called[0]["text"] == "I do this because it helps."
    first, second = [event for event in told if event["event"] == "returned"]
    assert first["problem"] is None
    assert '[action] price {"item": "tea"}: 3.5' in first["text"]
    assert "[file] total.txt (3 bytes)" in first["text"]
    assert second["problem"] == "failed"
    assert second["text"].startswith("so far 9.7\n")
    assert "KeyError: 'gold'" in second["text"]
    text = next(
        event["text"] for event in told if event["event"] == "spoke" and event["speaker"] == "assistant"
    )
    assert text.startswith("Together they cost 9.7 euros.\n\n> Embodied Actions:\nI do this")
    assert text.count("> Executed Results:") == 2
    (kept,) = (folder / "shop.db.files").rglob("*.txt")
    assert kept.read_text() == "sum"
    assert (folder / "asked.txt").read_text() == "tea\ncoffee\ngold\n"
    assert "so far 9.7" in bactrian("show", "shop.db", "--full", cwd=folder).stdout


def test_the_role_that_solves_may_have_a_body(folder: Path) -> None:
    script = write_script(
        folder,
        user=["Instruction: Name both prices.\nInput: None", "<CAMEL_TASK_DONE>"],
        assistant=[block("print(price('tea'), price('coffee'))"), "Solution: 3.5 and 6.2.\nNext request."],
    )
    arguments = (*ALONE, "--user", "Customer", "--no-specify", "--model", script, "--yes", "--json")
    done = bactrian(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    told = events(done.stdout)
    assert told[-1]["code"] == "task_done"
    text = next(
        event["text"] for event in told if event["event"] == "spoke" and event["speaker"] == "assistant"
    )
    assert text.startswith("Solution: 3.5 and 6.2.\n\n> Embodied Actions:")
    assert text.endswith('3.5 6.2\n[action] price {"item": "tea"}: 3.5\n'
                         '[action] price {"item": "coffee"}: 6.2\n\nNext request.')  # fmt: skip


def test_code_of_a_model_does_not_run_without_consent(folder: Path) -> None:
    script = write_script(folder, assistant=[block("price('tea')"), "Done."])
    done = bactrian(*ALONE, "--model", script, cwd=folder)
    assert done.returncode == 2
    assert "Give --yes" in done.stderr
    assert not (folder / "asked.txt").exists()
    # Nothing was begun, and so nothing is said to be stored.
    assert "stored" not in done.stderr
    assert not (folder / "shop.db").exists()


def test_the_end_of_an_embodied_agent_says_no_empty_reason(folder: Path) -> None:
    script = write_script(folder, assistant=["It is 9.7."])
    done = bactrian(*ALONE, "--model", script, "--yes", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "answered · turn 2" in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.split() in (["why"], ["why", "—"])]


def test_the_idea_that_an_agent_alone_is_given_is_a_persons_everywhere(folder: Path) -> None:
    script = write_script(folder, assistant=["It is 9.7."])
    done = bactrian(*ALONE, "--model", script, "--yes", cwd=folder)
    run = bt.open_run(folder / "shop.db")
    (talk,) = run
    shown = bactrian("show", "shop.db", "--full", cwd=folder).stdout
    pages = [str(talk), bactrian("show", "shop.db", talk.id, "--format", "markdown", cwd=folder).stdout]
    for text in (done.stdout, shown, *pages):
        assert "User" in text
        assert "AI user" not in text
    assert all("User (human)" in page.replace("**", "") for page in pages)
    assert [turn.model for turn in talk.turns] == ["human", "scripted:script.json"]
    assert "human" in run.status().models
    manifest = run.export("messages", folder / "chats")
    assert manifest["counts"]["messages_by_people"] == 1
    assert json.loads(json.loads((folder / "chats").read_text().splitlines()[0])["authors"]) == {"human": [1]}


def test_code_of_a_model_reaches_no_file_outside(folder: Path) -> None:
    secret = folder / "secret.txt"
    secret.write_text("hidden words")
    code = f"import os\nos.symlink({str(secret)!r}, 'link.txt')\nprint(open({str(secret)!r}).read())"
    script = write_script(folder, assistant=[block(code), "Done."])
    done = bactrian(*ALONE, "--model", script, "--yes", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "hidden words" not in done.stdout
    assert not (folder / "shop.db.files").exists()


def test_names_of_files_lead_nowhere(folder: Path) -> None:
    code = "import os\nos.makedirs('a')\nopen('a/b.txt', 'w').write('1')\nopen('..x', 'w').write('2')"
    script = write_script(folder, assistant=[block(code), "Done."])
    assert bactrian(*ALONE, "--model", script, "--yes", cwd=folder).returncode == 0
    (files,) = (folder / "shop.db.files").iterdir()
    assert sorted(path.name for path in files.iterdir()) == ["%..x", "a%2Fb.txt"]


def test_a_block_that_ends_its_process_is_told_and_its_files_stay(folder: Path) -> None:
    replies = [
        block("x = 1\nopen('kept.txt', 'w').write('still here')\nimport os\nos._exit(3)"),
        block("print(open('kept.txt').read(), 'x' in globals())"),
        "Done.",
    ]
    script = write_script(folder, assistant=replies)
    done = bactrian(*ALONE, "--model", script, "--yes", "--json", cwd=folder)
    first, second = [event for event in events(done.stdout) if event["event"] == "returned"]
    assert first["problem"] == "failed"
    assert second["text"].splitlines()[0].startswith("[Python was started again")
    assert "still here False" in second["text"]


@pytest.mark.slow
def test_a_block_that_does_not_end_is_stopped(folder: Path) -> None:
    replies = [block("while True: pass"), block("print('on')"), "Done."]
    arguments = (
        "--model",
        write_script(folder, assistant=replies),
        "--set",
        "tools.seconds=1",
        "--yes",
        "--json",
    )
    done = bactrian(*ALONE, *arguments, cwd=folder)
    first, second = [event for event in events(done.stdout) if event["event"] == "returned"]
    assert "time" in first["text"]
    assert second["text"].endswith("on")


@pytest.mark.slow
def test_a_session_that_is_killed_goes_on_with_its_files(folder: Path) -> None:
    replies = [
        block("open('first.txt', 'w').write('one')"),
        block("import time, os\nprint(sorted(os.listdir('.')))\ntime.sleep(3)"),
        "Done.",
    ]
    arguments = (*ALONE, "--model", write_script(folder, assistant=replies), "--yes", "--json")
    kill_in_second_block(folder, arguments)
    done = bactrian(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    last = [event for event in events(done.stdout) if event["event"] == "returned"][-1]
    assert "['first.txt']" in last["text"]
    assert last["text"].startswith("[Python was started again")


def kill_in_second_block(folder: Path, arguments: tuple[str, ...]) -> None:
    """Start a session, and kill it while its second block runs."""
    running = Command(arguments, folder, clean_environment())
    deadline = time.monotonic() + 60
    while count_calls(folder / "shop.db") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.kill()
    running.finish()


def count_calls(run: Path) -> int:
    if not run.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{run}?mode=ro", uri=True)) as connection:
            return connection.execute("select count(*) from tools").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def test_blocks_of_other_languages_are_not_run() -> None:
    text = 'I look.\n```json\n{"a": 1}\n```\nThen:\n```python\nx = 1\n```\n```\ny = 2\n```'
    explanation, blocks = split_blocks(text, 8)
    assert blocks == ["x = 1\n", "y = 2\n"]
    assert '{"a": 1}' in explanation
    assert split_blocks("```py\na\n```\n" * 5, 2)[1] == ["a\n", "a\n\na\n\na\n\na\n"]
    assert [block.code for block in find_blocks("```python\nz = 3")] == ["z = 3"]


def test_the_record_stands_before_the_request_for_the_next_one() -> None:
    assert insert_record("Solution: a.\nNext request.", "R") == "Solution: a.\n\nR\n\nNext request."
    assert insert_record("Done.\n", "R") == "Done.\n\nR"
    assert insert_record("Done.", "") == "Done."


@pytest.mark.slow
def test_a_session_that_is_killed_is_resumed_without_its_command_but_not_without_consent(
    folder: Path,
) -> None:
    replies = [block("print(price('tea'))"), block("import time\ntime.sleep(3)"), "It costs 3.5 euros."]
    arguments = (*ALONE, "--model", write_script(folder, assistant=replies), "--yes", "--json")
    kill_in_second_block(folder, arguments)
    refused = bactrian("resume", "shop.db", "--tools", "shop.py", cwd=folder)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    done = bactrian("resume", "shop.db", "--tools", "shop.py", "--yes", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert events(done.stdout)[-1]["code"] == "answered"
    assert "asked again" not in done.stderr


def test_python_plays_an_embodied_agent_with_its_functions(tmp_path: Path) -> None:
    def price(item: str) -> float:
        """Return the price of an item in euros."""
        return {"tea": 3.5}[item]

    script = bt.Scripted({"assistant": [block("print(price('tea'))"), "It costs 3.5 euros."]})
    session = bt.play(
        "What does tea cost?", embodied="Buyer", tools=[price], model=script, run=tmp_path / "a.db"
    )
    assert session.ending is not None
    assert session.ending.code == "answered"
    assert f"{RESULTS}\n3.5" in session.turns[1].text
    with pytest.raises(bt.BactrianError, match="critic"):
        bt.play("x", embodied="Buyer", critic="Judge", model=script)
    with pytest.raises(bt.BactrianError, match="plan"):
        bt.play("x", embodied="Buyer", plan=True, model=script)


RECIPE = """
name = "shopping"
[[axes]]
name = "buyer"
count = 2
given = ["Buyer", "Cook"]
[role_play]
assistant = "{{ buyer }}"
user = "Boss"
idea = "Add one and two"
embodied = true
specify = false
"""


def test_a_recipe_gives_each_session_a_body_if_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "shopping.toml").write_text(RECIPE, "utf-8")
    act = block("print(1 + 2)\nopen('sum.txt', 'w').write('3')")
    script = bt.Scripted(
        {
            "user": ["Instruction: Add 1 and 2.\nInput: None", "<CAMEL_TASK_DONE>"],
            "assistant": [act, "Solution: 3.\nNext request."],
        }
    )
    wanted = (tmp_path / "shopping.toml", tmp_path / "s.db")
    with pytest.raises(bt.BactrianError, match="run Python that a model writes"):
        bt.generate(wanted[0], run=wanted[1], model=script)
    run = bt.generate(wanted[0], run=wanted[1], model=script, run_code=True)
    assert run.endings == {"task_done": 2}
    assert all(f"{RESULTS}\n3" in session.turns[1].text for session in run)
    assert sorted(path.name for path in (tmp_path / "s.db.files").glob("*/*")) == ["sum.txt"] * 2


def test_a_recipe_with_a_body_and_a_critic_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shopping.toml").write_text(f"{RECIPE}\n[critic]\nrole = 'Judge'\n", "utf-8")
    with pytest.raises(bt.BactrianError, match="no critic"):
        bt.recipe(tmp_path / "shopping.toml")


async def test_a_call_without_code_is_told_and_starts_nothing() -> None:
    bench = Workbench([], 1.0, KeptFiles())
    with pytest.raises(BadArguments, match="code"):
        await bench.run('{"code": 5}')
    bench.close()
