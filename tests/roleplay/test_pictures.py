"""The tool that draws, by rules or by a model of pictures, into the folder of the agent that calls it."""

from __future__ import annotations

import asyncio
import base64
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.errors import BadReply, ModelError
from bactrian.models.openai import OpenAIModel
from bactrian.roleplay.picture_tool import draw_description, open_picture_tool
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.sandbox import needs_sandbox

SPECIES = ("dromedary", "Bactrian camel", "guanaco", "llama", "alpaca", "vicuña")
PNG = b"\x89PNG\r\n\x1a\n and the rest of a picture"
DRAWN = {"created": 1, "data": [{"b64_json": base64.b64encode(PNG).decode()}]}


def list_colours(svg: str) -> list[str]:
    return [part.attrib["color"] for part in ET.fromstring(svg) if "color" in part.attrib]


def test_a_description_becomes_its_things_in_their_numbers_and_colours() -> None:
    drawing = draw_description(
        "Three red flowers, two black cats and a vase by the sea at night, under 5 stars"
    )
    assert drawing.drawn == ("3 flower", "2 cat", "5 star")
    assert drawing.left_out == ("vase",)
    assert list_colours(drawing.svg).count("red") == 3
    assert list_colours(drawing.svg).count("black") == 2
    assert len(list_colours(drawing.svg)) == 10
    assert "Drawn by rules, not by a model: 3 flower, 2 cat, 5 star." in drawing.svg
    assert "Not drawn: vase." in drawing.svg
    assert draw_description("two black cats") == draw_description("two black cats")


def test_each_species_of_camelids_has_a_picture_of_its_own() -> None:
    pictures = {
        draw_description(f"a {name}").svg.partition("<text")[0].partition("<rect y=")[2] for name in SPECIES
    }
    assert len(pictures) == len(SPECIES)
    assert all(draw_description(f"a {name}").drawn for name in SPECIES)


@pytest.mark.parametrize(
    "text", ["", "quantum entanglement", "<svg onload='x'>\x00&", f"{'9' * 5000} camels", "a " * 9000]
)
def test_any_description_gives_a_picture_that_can_be_read(text: str) -> None:
    drawing = draw_description(text)
    ET.fromstring(drawing.svg)
    assert "onload='x'" not in drawing.svg
    assert len(drawing.svg) < 20_000


async def test_a_model_draws_at_the_images_endpoint() -> None:
    async with Endpoint([Answer(DRAWN)]) as endpoint:
        model = OpenAIModel("painter", base_url=endpoint.url, key="secret-key")
        assert await model.draw("a llama") == PNG
        await model.close()
    (request,) = endpoint.requests
    assert request.path == "/v1/images/generations"
    assert request.headers["Authorization"] == "Bearer secret-key"
    assert request.json == {"model": "painter", "prompt": "a llama", "n": 1, "response_format": "b64_json"}


async def test_a_model_that_refuses_the_form_of_the_picture_is_asked_without_it() -> None:
    refusal = {"error": {"message": "Unknown parameter: 'response_format'.", "param": "response_format"}}
    async with Endpoint([Answer(refusal, status=400), Answer(DRAWN)]) as endpoint:
        model = OpenAIModel("painter", base_url=endpoint.url)
        assert await model.draw("a llama") == PNG
        await model.close()
    assert "response_format" not in endpoint.requests[1].json


@pytest.mark.parametrize(
    "body", [{"data": [{"url": "http://127.0.0.1/a.png"}]}, {"data": []}, [], {"data": [{"b64_json": "!"}]}]
)
async def test_an_answer_without_a_picture_is_said(body: Any) -> None:
    async with Endpoint([Answer(body)]) as endpoint:
        model = OpenAIModel("painter", base_url=endpoint.url)
        with pytest.raises(BadReply, match="sent no picture"):
            await model.draw("a llama")
        await model.close()


async def test_a_refusal_of_the_endpoint_names_its_reason() -> None:
    async with Endpoint(
        [Answer({"error": {"message": "Your request was rejected by the safety system."}}, status=400)]
    ) as endpoint:
        model = OpenAIModel("painter", base_url=endpoint.url)
        with pytest.raises(ModelError, match="safety system"):
            await model.draw("a llama")
        await model.close()


LOOP = """I draw them one after another, because six pictures are asked for.

```python
for name in ['dromedary', 'Bactrian camel', 'guanaco', 'llama', 'alpaca', 'vicuña']:
    print(draw_image(f'a {name} in the desert', name))
```"""
LOOK = "I look at one.\n\n```python\nprint(open('llama.svg').read()[:4], draw_image(description='', file='x'))\n```"


@needs_sandbox
@pytest.mark.system
def test_an_embodied_agent_draws_six_species_and_their_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"assistant": [LOOP, LOOK, "All six are drawn."]}), "utf-8")
    command = ("play", "Draw all the Camelidae species", "--embodied", "Artist", "--tools", "image")
    done = bactrian(*command, "--model", "scripted:s.json", "--run", "a.db", "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = {path.name: path for path in (tmp_path / "a.db.files").glob("*/*")}
    assert len(kept) == 6
    assert all(draw in kept["llama.svg"].read_text("utf-8") for draw in ("<svg", "1 llama"))
    shown = bactrian("show", "a.db", "--full", cwd=tmp_path).stdout
    assert "drawn by rules: 1 llama" in " ".join(shown.split())
    assert "String should have at least 1 character" in " ".join(shown.split())


def paint_or_speak(request: Received) -> Plan:
    if request.path.endswith("/images/generations"):
        return Answer(DRAWN)
    own = sum(message["role"] == "assistant" for message in request.json["messages"])
    return completion("Done." if own else LOOP)


@needs_sandbox
@pytest.mark.system
async def test_a_model_of_pictures_draws_for_an_embodied_agent_whose_prompt_has_the_papers_clauses(
    tmp_path: Path,
) -> None:
    async with Endpoint([paint_or_speak]) as endpoint:
        painter = f"image:vllm:painter@{endpoint.url}"
        command = (
            "play",
            "Draw all the Camelidae species",
            "--embodied",
            "Artist",
            "--tools",
            painter,
            "--run",
            "a.db",
        )
        models = ("--model", f"vllm:any@{endpoint.url}", "--yes")
        done = await asyncio.to_thread(lambda: bactrian(*command, *models, cwd=tmp_path))
    assert done.returncode == 0, done.stderr
    kept = [path for path in (tmp_path / "a.db.files").glob("*/*") if path.suffix == ".png"]
    assert len(kept) == 6
    assert {path.read_bytes() for path in kept} == {PNG}
    asked = [request.json for request in endpoint.requests]
    assert sum("prompt" in each for each in asked) == 6
    system = asked[0]["messages"][0]["content"]
    for clause in (
        "physical embodiment of Artist",
        "working on this task: Draw all the Camelidae species",
        "browse the Internet, read documents, draw pictures, make videos, run code",
        "You are given thoughts",
        "according to their descriptions",
        "- draw_image(description: string, file: string): Draw a picture",
        "First say which actions you take and why",
        "none that is not listed",
        "Print what you need to know",
    ):
        assert clause in system
    assert asked[0]["messages"][1]["content"] == "Draw all the Camelidae species"


async def test_a_key_goes_to_no_address_that_a_recipe_may_have_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    async with Endpoint([Answer(DRAWN)]) as endpoint:
        async with open_picture_tool(f"openai:painter@{endpoint.url}") as tool:
            made = await tool.make_file('{"description": "a llama", "file": "llama"}')
        assert (made.name, made.content) == ("llama.png", PNG)
        assert "Authorization" not in endpoint.requests[0].headers


def test_an_agent_without_a_body_cannot_have_the_tool(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}", "utf-8")
    done = bactrian("play", "Draw a camel", "--tools", "image", "--model", "scripted:s.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "only an embodied agent has a folder" in done.stderr
    with pytest.raises(bt.BactrianError, match="has no endpoint that draws"):
        bt.play("Draw", embodied="Artist", tools=["image:local"], model=bt.Scripted({"assistant": ["x"]}))
