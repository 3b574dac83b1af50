"""Jobs that translate the conversations of another run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bactrian.recipes.load import read_recipe_text
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.generation import TASKS, asks, generate, said, stored


async def test_a_run_is_translated_with_markers_code_and_done_token_as_they_are(folder: Path) -> None:
    def speak(request: Received) -> Plan:
        if asks(request) == "assistant":
            return "Solution: Write this:\n```python\nprint('hello')\n```\nNext request."
        if asks(request) == "user" and len(request.json["messages"]) > 2:
            return "<CAMEL_TASK_DONE>"
        return said(request)

    def translate(request: Received) -> Plan:
        return f"[{request.json['messages'][1]['content']}]"

    async with Endpoint([speak]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
    async with Endpoint([translate]) as endpoint:
        translation = [
            *("generate", "translate", "--run", "de.db", "--set", "source=run.db"),
            *("--set", "language.count=2", "--model", "openai:any", "--base-url", endpoint.url),
        ]
        before = await asyncio.to_thread(lambda: bactrian(*translation, "--forecast", "--json", cwd=folder))
        code = await asyncio.to_thread(lambda: bactrian(*translation, cwd=folder).returncode)
        assert code == 0
        asked = len(endpoint.requests)
        assert json.loads(before.stdout)["calls"]["value"] == asked
        again = bactrian(*translation, "--forecast", cwd=folder)
        assert again.stdout.startswith("0 sessions are left")
    found = {session.id: session for session in await stored(folder, "de.db")}
    assert sorted(found) == ["ar_001_001", "de_001_001"]
    assert [turn.text for turn in found["de_001_001"].turns] == [
        "Instruction: [Do part 2.]\nInput: None",
        "Solution: [Write this:]\n```python\nprint('hello')\n```\nNext request.",
        "<CAMEL_TASK_DONE>",
    ]
    assert found["de_001_001"].provenance.language == "German"
    assert found["de_001_001"].ending == (await stored(folder))[0].ending
    assert asked == 4


@pytest.mark.parametrize("name", ["run.db", "sub/../run.db", "link.db"])
async def test_a_run_is_not_translated_into_itself(folder: Path, name: str) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
        asked, before = len(endpoint.requests), (folder / "run.db").read_bytes()
        (folder / "sub").mkdir()
        (folder / "link.db").symlink_to("run.db")
        command = ("generate", "translate", "--run", name, "--set", "source=run.db")
        where = ("--model", "openai:any", "--base-url", endpoint.url)
        done = await asyncio.to_thread(lambda: bactrian(*command, *where, cwd=folder))
        assert (done.returncode, len(endpoint.requests)) == (2, asked)
    assert "This is the input file" in done.stderr
    assert (folder / "run.db").read_bytes() == before


async def test_bold_markers_and_other_fences_stay_as_they_are_in_all_ten_languages(folder: Path) -> None:
    def speak(request: Received) -> Plan:
        match asks(request):
            case "lister":
                return TASKS
            case "user":
                return "**Instruction:** Do it.\n**Input:** None"
            case _:
                return "**Solution**: Run:\n~~~\nhello\n~~~\n**Next request.**"

    async with Endpoint([speak]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
    (folder / "small.toml").write_text(read_recipe_text("translate"))
    async with Endpoint([lambda request: f"[{request.json['messages'][1]['content']}]"]) as endpoint:
        options = ("--set", "source=run.db", "--run", "ten.db")
        code, _, err = await generate(folder, endpoint, *options)
    assert code == 0, err
    found = {session.id: session for session in await stored(folder, "ten.db")}
    assert sorted(each[:2] for each in found) == ["ar", "de", "es", "fr", "hi", "it", "ja", "ko", "ru", "zh"]
    for session in found.values():
        assert [turn.text for turn in session.turns[:2]] == [
            "**Instruction:** [Do it.]\n**Input:** None",
            "**Solution**: [Run:]\n~~~\nhello\n~~~\n**Next request.**",
        ]


async def test_a_translation_does_not_warn_of_the_models_that_made_the_original(folder: Path) -> None:
    asked = 0

    def speak(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        return {**completion(said(request)), "system_fingerprint": f"fp_{asked}", "model": f"old-{asked}"}

    def translate(request: Received) -> Plan:
        text = f"[{request.json['messages'][1]['content']}]"
        return {**completion(text), "system_fingerprint": "fp_translator"}

    async with Endpoint([speak]) as endpoint:
        _, lines, _ = await generate(folder, endpoint, "--limit", "1", "--json")
        assert lines[-1]["changes"]
    (folder / "small.toml").write_text(read_recipe_text("translate"))
    async with Endpoint([translate]) as endpoint:
        options = ("--set", "source=run.db", "--run", "ten.db", "--json")
        code, lines, err = await generate(folder, endpoint, *options)
    assert code == 0, err
    assert lines[-1]["changes"] == []
    assert "began to answer" not in err
    turns = [turn for session in await stored(folder, "ten.db") for turn in session.turns]
    assert {turn.fingerprint for turn in turns} == {"fp_translator"}
