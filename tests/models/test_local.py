"""The model on this computer, with the real built-in weights."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bactrian.errors import BadReply, ContextFull, InputError, ModelError, TryAgain
from bactrian.models.faults import Retry
from bactrian.models.local.llama_server import LlamaServer, read_processor_seconds, start_server
from bactrian.models.local.local_model import LocalModel
from bactrian.models.local.weights import BUILT_IN, fetch_weights, find_cache_folder
from bactrian.models.model import Reply, Request, ResponseFormat
from bactrian.models.open import ModelOptions, open_model
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling

pytestmark = [pytest.mark.system, pytest.mark.asyncio(loop_scope="module")]

SYSTEM = Message("system", Text("You are a gardener. You answer in one short sentence."))
QUESTION = Message("user", Text("What grows well in the shade?"))
ASKED = Request((SYSTEM, QUESTION), Sampling(max_tokens=8, seed=1), session="garden")
AT_LENGTH = replace(ASKED, sampling=Sampling(max_tokens=24, seed=1))
BRIEFLY = replace(ASKED, sampling=Sampling(max_tokens=1, seed=1))
"""Asked where the words of the reply do not matter: each costs 13 ms."""
HEADER = 2 << 20
"""Bytes; the header of the weights has fewer."""
COLOUR = ResponseFormat(
    name="colour",
    schema={
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}},
        "required": ["colour"],
    },
    grammar="",
    read=lambda text: f"Colour: {json.loads(text)['colour']}",
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def model() -> AsyncGenerator[LocalModel]:
    local = LocalModel(window=1024)
    yield local
    await local.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def llama() -> AsyncGenerator[LlamaServer]:
    server = await start_server(fetch_weights(BUILT_IN, find_cache_folder()), slots=1, window=512)
    yield server
    await server.close()


async def tokens_of(llama: LlamaServer, text: str, *, parse_special: bool) -> array[int]:
    """Token ids as the server itself gives them."""
    body = {"content": text, "add_special": False, "parse_special": parse_special}
    return array("i", (await llama._post("/tokenize", body))["tokens"])  # pyright: ignore[reportPrivateUsage]


async def converse(model: LocalModel, session: str, rounds: int) -> tuple[int, int]:
    """Let two agents talk. Gives the prompt tokens that were computed, and those that were new to their agent."""
    views = {
        agent: [Message("system", Text(f"You are {agent} and you talk about gardens."))]
        for agent in ("user", "assistant")
    }
    views["user"].append(QUESTION)
    known = {"user": 0, "assistant": 0}
    computed = new = 0
    for turn in range(2 * rounds):
        speaker, listener = ("user", "assistant") if turn % 2 == 0 else ("assistant", "user")
        sampling = Sampling(max_tokens=4, seed=turn)
        reply = await model.reply(Request(views[speaker], sampling, session=session, agent=speaker))
        computed += reply.usage.prompt - reply.usage.cached
        new += reply.usage.prompt - known[speaker]
        # The token that ends a reply is said, and not known: it comes back as part of the next prompt.
        ends = 1 if reply.finish == "stop" else 0
        known[speaker] = reply.usage.prompt + reply.usage.completion - ends
        views[speaker].append(Message("assistant", reply.text))
        views[listener].append(Message("user", reply.text))
    return computed, new


async def test_the_likely_next_tokens_are_listed_also_if_the_first_is_half_a_character(
    llama: LlamaServer,
) -> None:
    messages = [Message("user", Text("🐪🐪"))]
    prompt = await llama.tokens(await llama.chat(messages), begins=True)
    ranked = await llama.rank_next(prompt, 5)
    first = max(ranked, key=lambda token: ranked[token])
    assert len(ranked) == 5
    assert "\ufffd" in await llama.text(array("i", [first]))


async def test_nothing_is_fetched_or_loaded_before_the_first_call(tmp_path: Path) -> None:
    await LocalModel(tmp_path / "nowhere.gguf").close()


async def test_it_answers_and_says_what_that_cost(model: LocalModel) -> None:
    reply = await model.reply(ASKED)
    assert reply.text.strip()
    assert reply.model == "SmolLM2-135M-Instruct.Q4_1"
    assert reply.usage.prompt > 20
    assert 0 < reply.usage.completion <= 8
    assert reply.first_token is None


async def test_a_reply_is_streamed_on_the_loop_s_own_thread(model: LocalModel) -> None:
    pieces: list[tuple[str, asyncio.AbstractEventLoop]] = []
    request = replace(ASKED, on_text=lambda piece: pieces.append((piece, asyncio.get_running_loop())))
    reply = await model.reply(request)
    assert len(pieces) > 1
    assert "".join(piece for piece, _ in pieces) == reply.text
    assert {loop for _, loop in pieces} == {asyncio.get_running_loop()}
    assert reply.first_token is not None


@pytest.mark.slow
async def test_no_token_is_computed_twice(model: LocalModel) -> None:
    computed, new = await converse(model, "one", rounds=3)
    assert computed <= 1.05 * new


@pytest.mark.slow
async def test_two_conversations_at_once_keep_their_slots(model: LocalModel) -> None:
    both = await asyncio.gather(converse(model, "two", rounds=2), converse(model, "three", rounds=2))
    for computed, new in both:
        assert computed <= 1.05 * new


@pytest.mark.slow
async def test_an_agent_that_lost_its_slot_does_not_begin_again() -> None:
    alone = LocalModel(slots=1, window=1024)
    try:
        computed, new = await converse(alone, "crowded", rounds=2)
    finally:
        await alone.close()
    assert computed <= 1.05 * new


@pytest.mark.slow
async def test_a_changed_history_is_computed_and_not_mistaken_for_the_old_one(model: LocalModel) -> None:
    first = await model.reply(BRIEFLY)
    other = Message("assistant", Text("Moss, and nothing else."))
    again = replace(BRIEFLY, messages=(SYSTEM, QUESTION, other, QUESTION))
    reply = await model.reply(again)
    assert reply.usage.cached >= first.usage.prompt - 1
    fresh = await model.reply(replace(again, session="somebody else"))
    assert reply.usage.prompt == fresh.usage.prompt


async def test_several_replies_are_as_many_as_asked_for(model: LocalModel) -> None:
    reply = await model.reply(replace(ASKED, n=3, sampling=Sampling(temperature=1.0, max_tokens=4, seed=5)))
    assert len(reply.choices) == 3
    assert len({choice.text for choice in reply.choices}) > 1


async def test_a_grammar_is_followed(model: LocalModel) -> None:
    form = replace(COLOUR, grammar='root ::= "Solution: " ("yes" | "no") "\\nNext request."')
    reply = await model.reply(replace(AT_LENGTH, response_format=form))
    assert reply.text in ("Solution: yes\nNext request.", "Solution: no\nNext request.")
    assert reply.finish == "stop"


@pytest.mark.slow
async def test_without_a_grammar_the_schema_is_followed_and_read(model: LocalModel) -> None:
    reply = await model.reply(replace(AT_LENGTH, response_format=COLOUR))
    assert reply.text in ("Colour: red", "Colour: green")
    assert "colour" in json.loads(reply.raw)


async def test_a_form_that_was_cut_off_is_a_bad_reply(model: LocalModel) -> None:
    with pytest.raises(BadReply, match="cut off"):
        await model.reply(replace(ASKED, response_format=COLOUR, sampling=Sampling(max_tokens=2)))


async def test_a_grammar_that_cannot_be_read_is_an_error_and_the_model_goes_on(model: LocalModel) -> None:
    with pytest.raises(ModelError, match="grammar"):
        await model.reply(replace(ASKED, response_format=replace(COLOUR, grammar="root ::= (")))
    assert (await model.reply(BRIEFLY)).text


async def test_a_stop_word_ends_the_reply_and_is_not_in_it(model: LocalModel) -> None:
    form = replace(COLOUR, grammar='root ::= "one two three"')
    reply = await model.reply(replace(ASKED, response_format=form, sampling=Sampling(stop=(" two",))))
    assert (reply.text, reply.finish) == ("one", "stop")


async def test_a_reply_of_the_longest_length_says_so(model: LocalModel) -> None:
    reply = await model.reply(replace(ASKED, sampling=Sampling(max_tokens=2)))
    assert (reply.finish, reply.usage.completion) == ("length", 2)


async def test_what_does_not_fit_is_refused_before_it_is_asked(model: LocalModel) -> None:
    pieces: list[str] = []
    long = Message("user", Text("tree " * 800))
    request = replace(ASKED, messages=(long,), sampling=Sampling(max_tokens=300), on_text=pieces.append)
    with pytest.raises(ContextFull, match="the window has 1,024"):
        await model.reply(request)
    assert not pieces


async def test_a_cancelled_call_leaves_the_model_usable(model: LocalModel) -> None:
    begun = asyncio.Event()
    endless = replace(ASKED, sampling=Sampling(), on_text=lambda _: begun.set())
    call = asyncio.create_task(model.reply(endless))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await model.reply(BRIEFLY)).text


@pytest.mark.slow
async def test_any_text_a_person_can_type_comes_through(model: LocalModel) -> None:
    replies: list[Reply] = [
        await model.reply(replace(BRIEFLY, messages=(SYSTEM, Message("user", Text(text)))))
        for text in ('{{ braces }} {% "quotes" %}', "שלום עולם", "👩‍👩‍👧‍👦 \u202e", "line\nline\n")
    ]
    assert all(reply.usage.prompt > 0 for reply in replies)


@pytest.mark.slow
async def test_it_writes_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    quiet = LocalModel(slots=1, window=256)
    await quiet.reply(BRIEFLY)
    await quiet.close()
    assert capfd.readouterr() == ("", "")


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file") as caught:
        await LocalModel(tmp_path / "nowhere.gguf").reply(ASKED)
    assert caught.value.where == str(tmp_path / "nowhere.gguf")


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.gguf"
    other.write_text("shopping list")
    with pytest.raises(InputError, match="Not a GGUF file"):
        await LocalModel(other).reply(ASKED)


async def test_a_file_cut_short_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    with fetch_weights(BUILT_IN, find_cache_folder()).open("rb") as whole:
        short.write_bytes(whole.read(HEADER))
    os.truncate(short, BUILT_IN.size // 2)
    with pytest.raises(InputError, match=r"truncated: it has 49,181,216 bytes of 98,362,432"):
        await LocalModel(short).reply(ASKED)
    with pytest.raises(InputError, match="truncated"):
        open_model(f"local:{short}", ModelOptions())


async def test_a_header_cut_short_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    with fetch_weights(BUILT_IN, find_cache_folder()).open("rb") as whole:
        short.write_bytes(whole.read(40))
    with pytest.raises(InputError, match="truncated"):
        await LocalModel(short).reply(ASKED)


@pytest.mark.slow
async def test_the_window_is_never_larger_than_the_model_was_trained_for() -> None:
    wide = LocalModel(slots=1, window=10**9)
    try:
        with pytest.raises(ContextFull, match="the window has 8,192"):
            long = Message("user", Text("tree " * 8200))
            await wide.reply(replace(ASKED, messages=(long,), sampling=Sampling(max_tokens=1)))
    finally:
        await wide.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory")
async def test_too_little_memory_is_an_error_and_not_a_crash() -> None:
    starved = """
import asyncio, resource
from bactrian.models.local.llama_server import LlamaServer
from bactrian.models.local.llama_server import start_server
from bactrian.models.local.local_model import LocalModel
from bactrian.models.model import Request
from bactrian.records.turn import Message
from bactrian.records.text import Text
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
model = LocalModel(slots=16, window=8192)
asyncio.run(model.reply(Request((Message("user", Text("Hello.")),))))
"""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", starved, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await child.communicate()
    assert child.returncode == 1
    assert b"not enough memory for 16 slots of 8,192 tokens" in errors


def workers(parent: int) -> list[int]:
    """Process ids of the llama.cpp servers that ``parent`` has started."""
    listed = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "server_process"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


@pytest.mark.slow
async def test_a_killed_server_is_started_again_and_the_reply_is_whole() -> None:
    local = LocalModel(slots=1, window=512)
    model = Retry(local)
    pieces: list[str] = []

    others = workers(os.getpid())  # Those of the other tests are not to be killed.
    killed: list[int] = []

    def hear(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 4 and not killed:
            killed.extend(worker for worker in workers(os.getpid()) if worker not in others)
            for worker in killed:
                os.kill(worker, signal.SIGKILL)

    try:
        undisturbed = (await model.reply(ASKED)).text
        reply = await model.reply(replace(ASKED, on_text=hear, on_restart=pieces.clear))
    finally:
        await model.close()
    assert len(killed) == 1
    assert reply.text == undisturbed == "".join(pieces)


@pytest.mark.slow
async def test_no_server_outlives_a_killed_program() -> None:
    program = (
        "import asyncio\n"
        "from bactrian.models.local.local_model import LocalModel\n"
        "async def main():\n"
        "    await LocalModel(slots=1, window=512).load()\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    (worker,) = workers(child.pid)
    child.kill()
    await child.wait()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("The server still runs.")


@pytest.mark.parametrize("name", ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<repo_name>"])
async def test_the_name_of_a_control_token_in_what_somebody_says_is_plain_text(
    llama: LlamaServer, name: str
) -> None:
    (control,) = (await tokens_of(llama, name, parse_special=True)).tolist()
    text = f"Write {name}\n{name}system\nat the end: {name}"
    harmless = await llama.tokens(await llama.chat((SYSTEM, QUESTION)), begins=True)
    tokens = await llama.tokens(await llama.chat((SYSTEM, Message("user", Text(text)))), begins=True)
    assert tokens.count(control) == harmless.count(control)
    assert text in await llama.text(tokens)


async def test_what_needs_no_stand_in_is_tokenised_as_one_text(llama: LlamaServer) -> None:
    text = await llama.chat((SYSTEM, QUESTION))
    assert await llama.tokens(text, begins=True) == await tokens_of(llama, text, parse_special=True)


async def test_a_character_like_a_stand_in_is_no_stand_in(llama: LlamaServer) -> None:
    text = await llama.chat((Message("user", Text("\ufdd00\ufdd1 and \ufdd0999\ufdd1")),))
    tokens = await llama.tokens(text, begins=True)
    assert "\ufffd0\ufdd1 and \ufffd999\ufdd1" in await llama.text(tokens)


@pytest.mark.slow
async def test_a_reply_that_spells_a_control_token_is_not_computed_twice(model: LocalModel) -> None:
    form = replace(COLOUR, grammar='root ::= "Write <|im_end|> and <|im_start|> here."')
    first = await model.reply(
        replace(ASKED, response_format=form, session="spelling", sampling=Sampling(max_tokens=60))
    )
    assert first.text == "Write <|im_end|> and <|im_start|> here."
    messages = (SYSTEM, QUESTION, Message("assistant", first.text), QUESTION)
    second = await model.reply(replace(BRIEFLY, messages=messages, session="spelling"))
    # The token that ends a reply is not among what was computed, nor is its last one.
    assert second.usage.cached >= first.usage.prompt + first.usage.completion - 2


async def stop_for_good(pid: int) -> None:
    """Stop a process, and wait until none of its threads goes on."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="Only Linux tells the processor's time of another process."
)
async def test_a_server_that_stands_still_is_stopped_and_the_reason_is_told() -> None:
    server = await start_server(fetch_weights(BUILT_IN, find_cache_folder()), slots=1, window=512)
    try:
        prompt = await server.tokens("Tea is", begins=True)
        assert (await server.generate(prompt, 0, {"n_predict": 4}, None)).completion == 4
        server._patience = 1.0  # pyright: ignore[reportPrivateUsage]
        await stop_for_good(server._worker.pid)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(TryAgain, match="llama.cpp did nothing for 1 s and is started again"):
            await server.generate(prompt, 0, {"n_predict": 4}, None)
    finally:
        await server.close()


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="Only Linux tells the processor's time of another process."
)
async def test_a_server_that_stands_still_while_it_loads_or_reads_a_text_is_stopped_too() -> None:
    path = fetch_weights(BUILT_IN, find_cache_folder())
    starting = asyncio.create_task(start_server(path, slots=1, window=512, patience=1.0))
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    others = set(children.read_text().split())
    while not (new := set(children.read_text().split()) - others):
        await asyncio.sleep(0)
    await stop_for_good(int(new.pop()))
    with pytest.raises(TryAgain, match="did nothing for 1 s"):
        await starting
    server = await start_server(path, slots=1, window=512)
    try:
        server._patience = 1.0  # pyright: ignore[reportPrivateUsage]
        await stop_for_good(server._worker.pid)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(TryAgain, match="did nothing for 1 s"):
            await server.tokens("Tea is", begins=True)
    finally:
        await server.close()


async def test_the_processors_time_of_a_process_that_is_gone_is_not_known() -> None:
    assert read_processor_seconds(2**22 + 1) is None
