"""Rows of providers: what each is sent, which key goes where, and what a user's own may say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import Denied, InputError
from bactrian.models.credentials import DOTENV
from bactrian.models.http import read_address
from bactrian.models.model import Request, ResponseFormat
from bactrian.models.open import ModelOptions, find_traits, open_endpoints, open_model
from bactrian.models.pricing import FREE, find_price
from bactrian.models.providers import ProviderModel, load_providers, split_name
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from tests.helpers.endpoint import Endpoint, Received

FORM = ResponseFormat("form", {"type": "object"}, 'root ::= "x"', lambda text: text)
ASK = Request(
    [Message("user", Text("Go on."))],
    Sampling(0.2, 0.9, 64, seed=7, stop=("END",), reasoning_effort="low", extra={"top_k": 40}),
    response_format=FORM,
)
BEARER, API_KEY, NONE = "Authorization: Bearer k-123", "api-key: k-123", ""
SCHEMA, GRAMMAR = "response_format", "grammar"
OLD, NEW = "max_tokens", "max_completion_tokens"
# Address, path with query, header, word for the length, what constrains a reply.
SENT = {
    "openai": ("https://api.openai.com/v1", "/v1/chat/completions", BEARER, NEW, SCHEMA),
    "azure": (
        None,
        "/openai/deployments/a%2Fmodel/chat/completions?api-version=2024-10-21",
        API_KEY,
        NEW,
        SCHEMA,
    ),
    "anthropic": ("https://api.anthropic.com/v1", "/v1/chat/completions", BEARER, OLD, NONE),
    "gemini": (
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "/v1beta/openai/chat/completions",
        BEARER,
        OLD,
        SCHEMA,
    ),
    "mistral": ("https://api.mistral.ai/v1", "/v1/chat/completions", BEARER, OLD, SCHEMA),
    "groq": ("https://api.groq.com/openai/v1", "/openai/v1/chat/completions", BEARER, NEW, SCHEMA),
    "deepseek": ("https://api.deepseek.com", "/chat/completions", BEARER, OLD, NONE),
    "openrouter": ("https://openrouter.ai/api/v1", "/api/v1/chat/completions", BEARER, OLD, SCHEMA),
    "together": ("https://api.together.ai/v1", "/v1/chat/completions", BEARER, OLD, SCHEMA),
    "fireworks": (
        "https://api.fireworks.ai/inference/v1",
        "/inference/v1/chat/completions",
        BEARER,
        OLD,
        SCHEMA,
    ),
    "cerebras": ("https://api.cerebras.ai/v1", "/v1/chat/completions", BEARER, NEW, SCHEMA),
    "huggingface": ("https://router.huggingface.co/v1", "/v1/chat/completions", BEARER, OLD, SCHEMA),
    "ollama": ("http://localhost:11434/v1", "/v1/chat/completions", NONE, OLD, SCHEMA),
    "lmstudio": ("http://localhost:1234/v1", "/v1/chat/completions", NONE, OLD, SCHEMA),
    "llamacpp": ("http://localhost:8080/v1", "/v1/chat/completions", BEARER, OLD, GRAMMAR),
    "vllm": ("http://localhost:8000/v1", "/v1/chat/completions", BEARER, OLD, SCHEMA),
    "sglang": ("http://localhost:30000/v1", "/v1/chat/completions", NONE, OLD, SCHEMA),
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for row in load_providers().values():
        for variable in filter(None, (row.key, row.address_variable)):
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("BACTRIAN_CONFIG", str(tmp_path / "config"))
    monkeypatch.delenv(DOTENV, raising=False)


def write_rows(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config" / "providers.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


async def sent_to(name: str, options: ModelOptions | None = None, request: Request = ASK) -> Received:
    async with Endpoint(["x"]) as endpoint:
        model = open_model(name.format(url=endpoint.url), options or ModelOptions())
        try:
            await model.reply(request)
        finally:
            await model.close()
    return endpoint.requests[0]


def test_a_file_in_place_of_the_folder_of_own_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").touch()
    monkeypatch.setenv("BACTRIAN_CONFIG", str(tmp_path / "mine.toml"))
    with pytest.raises(InputError, match="path of a file"):
        load_providers()


def test_every_row_is_tested_and_cites_its_documentation() -> None:
    assert load_providers().keys() == SENT.keys()
    assert all(row.docs.startswith("https://") for row in load_providers().values())


@pytest.mark.parametrize("name", SENT)
async def test_what_a_provider_is_sent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address, path, header, length, constraint = SENT[name]
    row = load_providers()[name]
    assert row.address == address
    if row.key is not None:
        monkeypatch.setenv(row.key, "k-123")
    async with Endpoint(["x"]) as endpoint:
        host = endpoint.url.removesuffix("/v1")
        # The same row, but for the host: its address is out of reach.
        at = host + (read_address(address).path if address else "")
        here = row.model_copy(update={"address": at})
        (model,) = open_endpoints(
            f"{name}:a/model", ProviderModel(name, "a/model", None), here, ModelOptions()
        )
        reply = await model.reply(ASK)
        await model.close()
    assert reply.text == "x"
    request = endpoint.requests[0]
    asked = f"{request.path}{'?' if request.query else ''}{request.query}"
    assert asked.replace("a/model", "a%2Fmodel") == path
    sent = {
        f"{key}: {value}"
        for key, value in request.headers.items()
        if key.lower() in ("authorization", "api-key")
    }
    assert sent == ({header} if header else set())
    body = request.json
    assert (body["model"], body["temperature"], body["top_p"], body[length]) == ("a/model", 0.2, 0.9, 64)
    assert (body["stop"], body["reasoning_effort"], body["top_k"]) == (["END"], "low", 40)
    assert body["random_seed" if name == "mistral" else "seed"] == 7
    assert {"max_tokens", "max_completion_tokens"} & body.keys() == {length}
    assert {SCHEMA, GRAMMAR} & body.keys() == ({constraint} if constraint else set())


def test_a_name_has_a_provider_a_model_and_perhaps_an_address() -> None:
    assert split_name("groq:llama-3.3-70b") == ProviderModel("groq", "llama-3.3-70b", None)
    assert split_name("ollama:qwen3:8b") == ProviderModel("ollama", "qwen3:8b", None)
    assert split_name("vllm:a/b@http://host:8000/v1") == ProviderModel("vllm", "a/b", "http://host:8000/v1")
    assert split_name("openrouter:@cf/meta/llama") == ProviderModel("openrouter", "@cf/meta/llama", None)
    assert split_name("gpt-4o-mini") is None


async def test_a_name_may_say_where_its_model_is() -> None:
    request = await sent_to("vllm:mine@{url}")
    assert request.json["model"] == "mine"


def test_a_password_in_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="password"):
        open_model("vllm:mine@http://me:secret@host/v1", ModelOptions())


async def test_a_key_goes_to_an_address_that_the_person_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    async with Endpoint(["x"]) as endpoint:
        model = open_model("openai:m", ModelOptions(base_url=endpoint.url))
        await model.reply(ASK)
        await model.close()
    assert endpoint.requests[0].headers["Authorization"] == "Bearer k-123"


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("OPENAI_BASE_URL", "openai:m"),
        ("BACTRIAN_MODEL", "openai:m@{url}"),
        ("AZURE_OPENAI_ENDPOINT", "azure:m"),
    ],
)
@pytest.mark.parametrize("dotenv", ["address", "key"])
async def test_an_address_from_the_environment_gets_no_key_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str, dotenv: str
) -> None:
    key = "AZURE_OPENAI_API_KEY" if name.startswith("azure") else "OPENAI_API_KEY"
    async with Endpoint(["x"]) as endpoint:
        monkeypatch.setenv(key, "k-123")
        monkeypatch.setenv(
            variable, endpoint.url if variable != "BACTRIAN_MODEL" else name.format(url=endpoint.url)
        )
        monkeypatch.setenv(DOTENV, variable if dotenv == "address" else key)
        with pytest.raises(InputError, match=r"comes from .* it is not sent there"):
            open_model(name.format(url=endpoint.url), ModelOptions())
        monkeypatch.setenv(DOTENV, f"{variable} {key}")
        await open_model(name.format(url=endpoint.url), ModelOptions()).close()
    assert endpoint.requests == []


async def test_an_address_that_a_file_gives_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    async with Endpoint(["x"]) as endpoint:
        name = f"openai:m@{endpoint.url}"
        model = open_model(name, ModelOptions(distrusted=frozenset((name,))))
        await model.reply(ASK)
        await model.close()
    assert "Authorization" not in endpoint.requests[0].headers


async def test_a_key_is_never_sent_to_the_provider_s_host_without_encryption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not load_providers()["openai"].is_at("http://api.openai.com/v1")


async def test_a_provider_without_its_key_is_not_asked() -> None:
    model = open_model("groq:m", ModelOptions())
    with pytest.raises(Denied, match=r"api\.groq\.com needs a key") as caught:
        await model.reply(ASK)
    assert "GROQ_API_KEY" in str(caught.value)


def test_azure_needs_an_address() -> None:
    with pytest.raises(InputError, match="AZURE_OPENAI_ENDPOINT"):
        open_model("azure:m", ModelOptions())


async def test_a_row_of_one_s_own_is_asked_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "k-456")
    async with Endpoint(["x"]) as endpoint:
        row = f"""
        [[providers]]
        name = "ours"
        address = "{endpoint.url}"
        key = "OUR_KEY"
        auth = "api-key"
        length = "max_completion_tokens"
        renamed = {{ seed = "random_seed" }}
        constrained_by = "none"
        window = 4096
        """
        write_rows(tmp_path, row)
        model = open_model("ours:m", ModelOptions())
        await model.reply(ASK)
        await model.close()
    request = endpoint.requests[0]
    assert request.headers["api-key"] == "k-456"
    assert {"max_completion_tokens", "random_seed"} <= request.json.keys()
    assert "response_format" not in request.json
    assert find_traits("ours:m").constrained_by == "none"
    assert find_price("ours:m", None) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '[[providers]]\nname = "x"\naddres = "http://h/v1"',
            "toml:3:1: Unknown key 'addres'. Did you mean",
        ),
        ('[[providers]]\nname = "x"', "needs `address`"),
        ('[[providers]]\nname = "x"\naddress = "nowhere"', "not an address"),
        ('[[providers]]\nname = "X y"\naddress = "http://h/v1"', "lower-case letters"),
        ('[[providers]]\nname = "x"\naddress = "http://h/v1"\nauth = "basic"', "bearer"),
        (
            '[[providers]]\nname = "x"\naddress = "http://h"\n[[providers]]\nname = "x"\naddress = "http://h"',
            "twice",
        ),
        ("[[providers]]\nname = nothing", "toml:2"),
        ('[[providers]]\nname = "local"\naddress = "http://h/v1"', "stands for another kind of model"),
        ('[[providers]]\nname = "x"\naddress = "http://h/v1"\nkey = "A B"', "toml:4"),
        # The key itself, of a provider whose keys are like names.
        ('[[providers]]\nname = "x"\naddress = "http://h/v1"\nkey = "gsk_A1b2C3"', "toml:4"),
        ('[[providers]]\nname = "x"\naddress = "http://h/v1"\npath = "{nope}"', "its only placeholder"),
    ],
)
def test_a_fault_in_one_s_own_rows_is_told_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    write_rows(tmp_path, text)
    with pytest.raises(InputError, match=complaint):
        open_model("openai:m", ModelOptions())


def test_a_providers_file_that_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    path = write_rows(tmp_path, "")
    path.unlink()
    makers: tuple[Callable[[Path], None], ...] = (
        os.mkfifo,
        Path.mkdir,
        lambda link: link.symlink_to("/dev/zero"),
        lambda link: link.symlink_to(link),
    )
    for make in makers:
        make(path)
        with pytest.raises(InputError, match="The providers file (is a folder, a pipe|cannot be read)"):
            open_model("openai:m", ModelOptions())
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt-4o-mini", "Did you mean 'openai:gpt-4o-mini'"),
        ("claude-sonnet-4-5", "Did you mean 'anthropic:claude-sonnet-4-5'"),
        ("gemini-3-pro", "Did you mean 'gemini:gemini-3-pro'"),
        ("my-model", "There is no model named 'my-model'.\nA model is one of"),
        ("grok:llama", "Did you mean 'groq:llama'"),
        ("olama:qwen3", "Did you mean 'ollama:qwen3'"),
        ("olama", "Did you mean 'ollama:NAME'"),
        ("llama3.2", "There is no model named 'llama3.2'.\nA model is one of"),
        ("locl", "Did you mean 'local'"),
        ("groq", "is a provider and not a model"),
        ("quantum:m", "There is no model named"),
    ],
)
def test_a_name_that_stands_for_nothing_gets_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        open_model(name, ModelOptions())


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("local", FREE),
        ("scripted:x", FREE),
        ("ollama:qwen3", FREE),
        ("vllm:m@http://127.0.0.1:9/v1", FREE),
        ("vllm:m@http://gpu.example/v1", None),
        ("acme:x", None),
        ("huggingface:m", None),
        ("groq:no-such-model", None),
        ("openai:m@http://127.0.0.1:9/v1", None),
    ],
)
def test_a_price_that_is_not_known_is_none_and_never_nothing(name: str, price: Any) -> None:
    assert find_price(name, None) == price


@pytest.mark.parametrize(
    "name",
    [
        "openai:gpt-4o-mini",
        "azure:gpt-4o-mini",
        "anthropic:claude-3-5-haiku-latest",
        "gemini:gemini-2.5-flash",
        "mistral:mistral-small-latest",
        "groq:llama-3.3-70b-versatile",
        "deepseek:deepseek-chat",
        "openrouter:openai/gpt-4o-mini",
        "together:meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "cerebras:gpt-oss-120b",
    ],
)
def test_providers_have_prices(name: str) -> None:
    price = find_price(name, None)
    assert price is not None
    assert price.completion > 0


def test_traits_are_asked_by_name() -> None:
    assert find_traits("local").small
    assert find_traits("local:/a.gguf").in_process
    assert find_traits("groq:m").remote
    assert find_traits("deepseek:m").constrained_by == "none"
    assert find_traits("llamacpp:m").constrained_by == "grammar"
    assert not find_traits("scripted:x").priced
    assert find_traits("my function").priced
