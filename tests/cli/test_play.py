"""The command ``bactrian play`` as a person and a program meet it."""

from __future__ import annotations

import asyncio
import json
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from bactrian.store import open_store
from bactrian.train.training import EXTRA
from tests.helpers.command import LINES, Command, bactrian, clean_environment, events
from tests.helpers.endpoint import Endpoint, Plan, Raw, Received, completion
from tests.helpers.terminal import at_a_terminal


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text(json.dumps(LINES))
    return f"scripted:{tmp_path / 'script.json'}"


def test_json_lines_hold_the_whole_conversation_and_nothing_else(tmp_path: Path, script: str) -> None:
    done = bactrian("play", "tea", "--model", script, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    started, *spoke, ended = events(done.stdout)
    assert (started["event"], started["original_task"], started["specified_task"]) == (
        "started",
        "tea",
        LINES[0],
    )
    assert [(line["turn"], line["speaker"], line["text"]) for line in spoke] == [
        (1, "user", LINES[1]),
        (2, "assistant", LINES[2]),
        (3, "user", LINES[3]),
    ]
    assert (ended["event"], ended["code"], ended["turn"]) == ("ended", "task_done", 3)


def test_a_person_reads_the_conversation_on_standard_output(tmp_path: Path, script: str) -> None:
    done = bactrian("play", "tea", "--model", script, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "A dial and a bell." in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "idea",
    ['{task} {{ 7*7 }} {% raw %} "quoted" \\n', "two\nlines", "שלום עולם", "🐫 كيف", "{0.__class__}", "'"],
)
def test_any_idea_comes_out_as_it_is(tmp_path: Path, script: str, idea: str) -> None:
    done = bactrian("play", idea, "--model", script, "--json", cwd=tmp_path)
    assert events(done.stdout)[0]["original_task"] == idea


def test_the_environment_mirrors_flags_and_a_flag_wins(tmp_path: Path, script: str) -> None:
    (tmp_path / ".env").write_text("BACTRIAN_ASSISTANT=Potter\n")
    done = bactrian(
        "play", "tea", "--json", "--user", "Cook", cwd=tmp_path, BACTRIAN_MODEL=script, BACTRIAN_USER="Pilot"
    )
    started = events(done.stdout)[0]
    assert (started["assistant_role"], started["user_role"]) == ("Potter", "Cook")


def test_a_stored_session_is_told_again_and_replayed(tmp_path: Path, script: str) -> None:
    command = ("play", "tea", "--model", script, "--json", "--run", "run.db")
    first = events(bactrian(*command, cwd=tmp_path).stdout)
    (tmp_path / "script.json").write_text("[]")
    again = events(bactrian(*command, cwd=tmp_path).stdout)
    assert [line["text"] for line in again[1:-1]] == [line["text"] for line in first[1:-1]]
    assert all(line["stored"] for line in again[1:-1])
    replayed = bactrian("play", "tea", "--model", "recorded:run.db", "--json", cwd=tmp_path)
    assert [line["text"] for line in events(replayed.stdout)[1:-1]] == LINES[1:]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("play", "tea", "--model", "opneai:x"), 2, "Did you mean 'openai:x'?"),
        (("play", "tea", "--model", "acme"), 2, "There is no model named 'acme'.\nA model is one of"),
        (("play", "tea", "--set", "parameters.critic.temperature=0.5"), 2, "there is no critic"),
        (("play", "tea", "--set", "models.critic=local"), 2, "there is no critic"),
        (
            ("play", "tea", "--model", "groq:x", "--base-url", "http://127.0.0.1:9/v1"),
            2,
            "groq:x@http://127.0.0.1",
        ),
        (("play", "tea", "--model", "openai:x"), 1, "OPENAI_API_KEY"),
        (("play", "tea", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1"), 1, "Cannot connect"),
        (("play", "tea", "--model", "openai:x", "--base-url", "nonsense"), 2, "base URL"),
        (("play", " "), 2, "The idea is empty"),
        (("play", "tea", "--assistant", ""), 2, "The assistant role is empty"),
        (("play", "tea", "--prompts", "nowhere"), 2, "ai-society"),
        (("play", "tea", "--prompts", "bad.toml"), 2, "bad.toml"),
        (("play", "tea", "--run", "notes.txt"), 2, "not a run"),
        (("play", "tea", "--run", "missing/run.db"), 2, "There is no folder"),
        (("play", "tea", "--run", "/proc/run.db"), 2, "/proc"),
        (("play", "tea", "--model", "scripted:none.json"), 2, "none.json"),
        (("play", "tea", "--model", "scripted:notes.txt"), 2, "This is not a script"),
        (("play", "tea", "--model", "local:notes.txt"), 2, "notes.txt"),
        (("play", "tea", "--model", "recorded:none.db"), 2, "There is no such run"),
        (("play", "tea", "--no-such-flag"), 2, "--no-such-flag"),
    ],
)
def test_bad_input_gives_one_clear_error(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    (tmp_path / "notes.txt").write_text("These are notes.\n" * 50)
    (tmp_path / "bad.toml").write_text('name = "bad"\ntemplatse = 1\n')
    done = bactrian(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [(b"a" * 10_000_000, "10,000,000"), (b"a\0b", "NUL"), (b"\xff\xfe", "UTF-8"), (b"", "empty")],
)
def test_an_idea_from_standard_input_is_checked_too(
    tmp_path: Path, script: str, text: bytes, says: str
) -> None:
    done = bactrian("play", "-", "--model", script, cwd=tmp_path, text=text)
    assert done.returncode == 2
    assert says in done.stderr


def conversation(request: Received) -> Plan:
    """Turns of a long conversation, each one different, a moment after it was asked for."""
    number = len(request.json["messages"])
    asks = "and you instruct" in request.json["messages"][0]["content"]
    text = (
        f"Instruction: Part {number} of it {'x' * number}.\nInput: None"
        if asks
        else f"Solution: {number}.\nNext request."
    )
    return completion(text)


PLAY = [
    "play",
    "tea",
    "--no-specify",
    "--model",
    "openai:m",
    "--run",
    "run.db",
    "--json",
    "--max-messages",
    "14",
]


def start(cwd: Path, url: str) -> Command:
    return Command(tuple(PLAY), cwd, clean_environment(OPENAI_BASE_URL=url))


@pytest.mark.parametrize(
    ("which", "code"),
    [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=lambda x: str(x),
)
async def test_a_session_that_was_cut_short_goes_on_and_pays_for_nothing_twice(
    tmp_path: Path, which: signal.Signals, code: int
) -> None:
    async with Endpoint([conversation]) as endpoint:
        child = start(tmp_path, endpoint.url)
        while len(endpoint.requests) < 5 and child.returncode is None:
            await asyncio.sleep(0.005)
        child.send_signal(which)
        _, complaint = await child.communicate()
        assert child.returncode == code
        assert which == signal.SIGKILL or "un the same command again" in complaint.decode()
        again = start(tmp_path, endpoint.url)
        output, complaint = await again.communicate()
        assert again.returncode == 0, complaint
        assert [line["turn"] for line in events(output.decode())[1:-1]] == list(range(1, 15))
        assert 14 <= len(endpoint.requests) <= 15
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        (session,) = [session async for session in store.sessions()]
    assert [turn.number for turn in session.turns] == list(range(1, 15))


@pytest.mark.slow
async def test_ctrl_c_in_a_reply_leaves_its_words_and_the_cursor_on_the_terminal(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    words = b'data: {"choices": [{"index": 0, "delta": {"content": "Instruction: Fill the kettle"}}]}\n\n'
    async with Endpoint([Raw((head + words,), "hang")]) as endpoint:
        play = ("play", "tea", "--model", "openai:x", "--base-url", endpoint.url, "--no-specify")
        keys = [(b"kettle", b"\x03")]
        code, seen = await asyncio.to_thread(at_a_terminal, tmp_path, play, keys=keys)
    assert code == 130, seen
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l") > 0
    assert b"Fill the kettle" in seen[seen.rfind(b"\x1b[?25h") :]


def test_the_doctor_says_whether_the_model_answers(tmp_path: Path, script: str) -> None:
    well = bactrian("doctor", "--model", script, cwd=tmp_path)
    assert (well.returncode, "answers as" in well.stdout) == (0, True)
    can_train = all(find_spec(name) is not None for name in EXTRA)
    assert ("✓ train: fine-tuning on" if can_train else "✗ train: not installed") in well.stdout
    ill = bactrian("doctor", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1", cwd=tmp_path)
    assert (ill.returncode, "does not answer" in ill.stdout) == (1, True)


CRITIC_LINES = {
    "user": [["Instruction: Boil.\nInput: None", "Instruction: Pour.\nInput: None"], "<CAMEL_TASK_DONE>"],
    "assistant": [["Solution: Hot.\nNext request.", "Solution: Cold.\nNext request."]],
    "critic": [["Hm", "Choice: 2\nIt is wet."], "Choice: 1\nIt is warm.", "Choice: 1\nIt is over."],
}


def test_a_critic_chooses_and_json_shows_proposals_and_choices(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(CRITIC_LINES))
    command = ("play", "tea", "--model", f"scripted:{tmp_path / 'script.json'}", "--no-specify")
    critic = ("--critic", "Tea Master", "--proposals", "2", "--run", "run.db")
    done = bactrian(*command, *critic, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = events(done.stdout)
    assert [line["event"] for line in lines[1:6]] == ["proposed", "proposed", "chose", "chose", "spoke"]
    assert (lines[3]["place"], lines[3]["problem"] != "", lines[4]["place"]) == (None, True, 2)
    assert (lines[4]["chooser"], lines[4]["reason"]) == ("Tea Master", "It is wet.")
    assert [line["text"] for line in lines if line["event"] == "spoke"] == [
        CRITIC_LINES["user"][0][1],
        CRITIC_LINES["assistant"][0][0],
        "<CAMEL_TASK_DONE>",
    ]
    (tmp_path / "script.json").write_text("{}")
    again = bactrian(*command, *critic, "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    told = bactrian(*command, *critic, cwd=tmp_path)
    assert "Pour." in told.stdout


def test_a_person_sees_what_could_have_been_said_and_why_it_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(CRITIC_LINES))
    done = bactrian(
        *("play", "tea", "--model", f"scripted:{tmp_path / 'script.json'}", "--no-specify"),
        *("--critic", "Tea Master", "--proposals", "2"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for words in ("could say (1)", "Boil.", "gave an unreadable answer, “", "Tea Master takes 2. It is wet."):
        assert words in done.stdout


def test_without_colour_or_utf_8_nothing_but_text_is_written(tmp_path: Path, script: str) -> None:
    plain = bactrian("play", "tea", "--model", script, cwd=tmp_path, NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0")
    assert plain.returncode == 0, plain.stderr
    assert "\x1b" not in plain.stdout + plain.stderr


async def test_a_larger_limit_goes_on_with_the_session_that_stopped_at_a_smaller_one(tmp_path: Path) -> None:
    async def played(limit: str) -> list[int]:
        command = (*PLAY[:-1], limit)
        child = Command(command, tmp_path, clean_environment(OPENAI_BASE_URL=endpoint.url))
        output, complaint = await child.communicate()
        assert child.returncode == 0, complaint
        *_, ended = told = events(output.decode())
        assert ended["code"] == "max_messages"
        return [line["turn"] for line in told[1:-1]]

    async with Endpoint([conversation]) as endpoint:
        for limit, asked in (("4", 4), ("6", 6), ("9", 9), ("9", 9), ("6", 9), ("12", 12)):
            turns = await played(limit)
            assert turns == list(range(1, max(int(limit), asked) + 1))
            assert len(endpoint.requests) == asked
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        (session,) = [session async for session in store.sessions()]
    assert session.ending is not None
    assert (session.ending.code, session.ending.turn, len(session.turns)) == ("max_messages", 12, 12)


async def test_a_session_that_goes_on_under_a_larger_limit_can_be_killed_and_resumed(tmp_path: Path) -> None:
    async with Endpoint([conversation]) as endpoint:
        short = Command((*PLAY[:-1], "4"), tmp_path, clean_environment(OPENAI_BASE_URL=endpoint.url))
        await short.communicate()
        child = start(tmp_path, endpoint.url)
        while len(endpoint.requests) < 8 and child.returncode is None:
            await asyncio.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        await child.communicate()
        again = start(tmp_path, endpoint.url)
        output, complaint = await again.communicate()
        assert again.returncode == 0, complaint
        assert [line["turn"] for line in events(output.decode())[1:-1]] == list(range(1, 15))
        assert len(endpoint.requests) <= 15
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        (session,) = [session async for session in store.sessions()]
    assert len(session.turns) == 14


def test_a_second_critic_is_refused_and_one_of_several_words_comes_from_the_environment(
    tmp_path: Path, script: str
) -> None:
    play = ("play", "tea", "--model", script)
    done = bactrian(*play, "--critic", "Tea Master", "--critic", "Potter", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--critic is given 2 times" in done.stderr
    assert "--society" in done.stderr
    lines = {"critic": ["Choice: 1"] * 9, "user": ["<CAMEL_TASK_DONE>"] * 9}
    (tmp_path / "critic.json").write_text(json.dumps(lines))
    command = (*play[:2], "--no-specify", "--model", f"scripted:{tmp_path / 'critic.json'}", "--json")
    told = bactrian(*command, "--run", "run.db", cwd=tmp_path, BACTRIAN_CRITIC="Tea Master")
    assert told.returncode == 0, told.stderr
    assert "Tea Master" in told.stdout


async def test_a_tool_call_without_words_that_nobody_offered_is_no_turn(tmp_path: Path) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "rm", "arguments": "{}"}}]
    async with Endpoint([completion(None, finish="tool_calls", tool_calls=calls)]) as endpoint:
        where = ("--model", "openai:any", "--base-url", endpoint.url, "--no-specify", "--json")
        process = Command(("play", "An idea", *where), tmp_path, clean_environment())
        out, err = await process.communicate()
    assert process.returncode == 1
    assert b"with nothing, twice" in err
    assert b'"spoke"' not in out
