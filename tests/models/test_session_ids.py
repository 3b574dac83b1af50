"""The name of a conversation on the wire, by which servers and routers find its prefix cache."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions, open_model
from bactrian.records.text import Text
from bactrian.records.turn import Message
from tests.helpers.endpoint import Answer, Endpoint, completion

HEADER = "X-Session-ID"
NAME = re.compile(r"[0-9a-f]{32}")
KEY = "prompt_cache_key"


def ask(session: str = "001_001_001", agent: str = "user") -> Request:
    return Request([Message("user", Text("Hello"))], session=session, agent=agent)


async def reply(name: str, request: Request | None = None, **options: object) -> None:
    model = open_model(name, ModelOptions(**options))  # type: ignore[arg-type]
    try:
        await model.reply(request or ask())
    finally:
        await model.close()


async def test_the_turns_of_an_agent_have_one_name_and_no_other_agent_has_it(tmp_path: Path) -> None:
    replies = ["Instruction: Go on.\nInput: None", "Solution: Done. Next request."]
    async with Endpoint([*replies * 2]) as endpoint:
        session = bt.stream(
            "Plan a garden",
            model=f"vllm:m@{endpoint.url}",
            specify=False,
            max_messages=4,
            run=tmp_path / "run.db",
        )
        async for _ in session:
            pass
    names = [request.headers[HEADER] for request in endpoint.requests]
    assert len(names) == 4
    assert all(map(NAME.fullmatch, names))
    assert names[:2] == names[2:]
    assert names[0] != names[1]


async def test_the_same_session_of_another_run_has_another_name() -> None:
    async with Endpoint() as endpoint:
        for run in ("a.db", "a.db", "b.db"):
            await reply(f"vllm:m@{endpoint.url}", run=run)
    first, again, other = (request.headers[HEADER] for request in endpoint.requests)
    assert first == again != other


async def test_session_ids_can_be_turned_off() -> None:
    async with Endpoint() as endpoint:
        await reply(f"vllm:m@{endpoint.url}", session_ids=False)
    assert HEADER not in endpoint.requests[0].headers
    assert KEY not in endpoint.requests[0].json


async def test_a_request_without_a_session_has_no_name() -> None:
    async with Endpoint() as endpoint:
        await reply(f"vllm:m@{endpoint.url}", ask(session=""))
    assert HEADER not in endpoint.requests[0].headers


PROVIDER = """
[[providers]]
name = "{name}"
address = "{url}"
"""


@pytest.fixture
def providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACTRIAN_CONFIG", str(tmp_path))
    return tmp_path / "providers.toml"


async def test_a_provider_with_a_field_for_it_gets_the_name_in_the_body(providers: Path) -> None:
    async with Endpoint() as endpoint:
        providers.write_text(PROVIDER.format(name="mine", url=endpoint.url) + f'cache_key = "{KEY}"\n')
        await reply("mine:m")
    sent = endpoint.requests[0]
    assert NAME.fullmatch(sent.json[KEY])
    assert sent.json["messages"] == [{"role": "user", "content": "Hello"}]


async def test_azure_gets_the_field_and_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Endpoint() as endpoint:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key-of-a-test")
        await reply("azure:m")
    assert NAME.fullmatch(endpoint.requests[0].json[KEY])
    assert HEADER not in endpoint.requests[0].headers


async def test_a_server_that_refuses_the_field_is_asked_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = {"error": {"message": f"Unrecognized request argument supplied: {KEY}", "param": None}}
    async with Endpoint([Answer(complaint, 400), completion("Solution: Yes.")]) as endpoint:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key-of-a-test")
        await reply("azure:m")
    assert [KEY in request.json for request in endpoint.requests] == [True, False]


def test_which_providers_are_told_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_BASE_URL", "BACTRIAN_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    told: dict[str, tuple[bool, str | None]] = {}
    for name in (
        "openai:m",
        "mistral:m",
        "openrouter:m",
        "groq:m",
        "ollama:m",
        "openai:m@https://api.groq.com/openai/v1",
        "openai:m@https://gpu.example/v1",
    ):
        dialect = vars(open_model(name, ModelOptions()))["_dialect"]
        told[name] = dialect.session_header, dialect.cache_key
    assert told == {
        "openai:m": (False, KEY),
        "mistral:m": (False, KEY),
        "openrouter:m": (True, None),
        "groq:m": (False, None),
        "ollama:m": (True, None),
        "openai:m@https://api.groq.com/openai/v1": (False, None),
        "openai:m@https://gpu.example/v1": (True, None),
    }
