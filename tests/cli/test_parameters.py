"""How agents sample, by flags and by recipes: what is sent, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import InputError
from bactrian.models.model import derive_seed, fit_seed
from bactrian.recipes.parameters import read_parameters
from bactrian.records.turn import Sampling
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import RECIPE, asks, said

SENT = ("temperature", "top_p", "max_tokens", "stop", "seed", "reasoning_effort", "top_k")


async def sent_by(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """The parameters that each agent's model was sent first."""
    async with Endpoint([said]) as endpoint:
        where = ("--model", f"vllm:any@{endpoint.url}")
        done = await asyncio.to_thread(bactrian, *arguments, *where, cwd=folder)
    assert done.returncode in (0, 4), done.stderr
    sent: dict[str, dict[str, Any]] = {}
    for request in endpoint.requests:
        body = request.json
        sent.setdefault(asks(request), {name: body[name] for name in SENT if name in body})
    return sent


async def test_settings_of_all_agents_and_of_one(tmp_path: Path) -> None:
    sent = await sent_by(
        tmp_path,
        *("play", "Bake bread", "--no-specify", "--max-messages", "2", "--seed", "5"),
        *(
            "--set",
            "parameters.temperature=0.7",
            "--set",
            "parameters.assistant.temperature=none",
            "--set",
            "parameters.user.top_p=0.8",
        ),
        *(
            "--set",
            "parameters.max_tokens=300",
            "--set",
            "parameters.assistant.seed=none",
            "--set",
            "parameters.stop=END",
        ),
        *(
            "--set",
            "parameters.assistant.reasoning_effort=low",
            "--set",
            "parameters.assistant.body={top_k=40}",
        ),
    )
    assert sent["user"].pop("seed") == fit_seed(derive_seed(5, "user", 1, 0, False))
    assert sent["user"] == {"temperature": 0.7, "top_p": 0.8, "max_tokens": 300, "stop": ["END"]}
    assert sent["assistant"] == {"max_tokens": 300, "stop": ["END"], "reasoning_effort": "low", "top_k": 40}


async def test_a_recipe_says_it_and_settings_count_for_more(tmp_path: Path) -> None:
    more = '[parameters]\ntop_p = 0.9\n[parameters.assistant]\ntemperature = "none"\nmax_tokens = 99\n'
    (tmp_path / "small.toml").write_text(RECIPE + more)
    sent = await sent_by(
        tmp_path,
        *("generate", "small.toml", "--run", "run.db", "--limit", "1"),
        *(
            "--set",
            "parameters.user.stop=END",
            "--set",
            "parameters.assistant.max_tokens=77",
            "--set",
            "parameters.temperature=0.5",
        ),
    )
    assert sent["user"] == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 1024, "stop": ["END"]}
    assert sent["assistant"] == {"top_p": 0.9, "max_tokens": 77}


async def test_the_model_that_writes_lists_takes_parameters_but_no_length_of_a_turn(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    sent = await sent_by(
        tmp_path,
        *("generate", "small.toml", "--run", "run.db", "--limit", "1", "--seed", "5"),
        *(
            "--set",
            "parameters.temperature=none",
            "--set",
            "parameters.max_tokens=77",
            "--set",
            "parameters.lister.top_p=0.5",
            "--set",
            "parameters.body={top_k=40}",
        ),
    )
    assert sent["assistant"]["max_tokens"] == 77
    assert sent["lister"].pop("max_tokens", None) != 77
    assert sent["lister"].pop("seed") < 1 << 31
    assert sent["lister"] == {"top_p": 0.5, "top_k": 40}


async def test_the_model_that_suggests_roles_takes_parameters(tmp_path: Path) -> None:
    roles = "Role: Baker\nDescription: Bakes bread.\n\nRole: Miller\nDescription: Mills flour."
    async with Endpoint([roles]) as endpoint:
        asked = ("roles", "Bake bread", "--model", "openai:any", "--base-url", endpoint.url, "--names")
        more = ("--temperature", "none", "--reasoning-effort", "low", "--tier", "flex")
        done = await asyncio.to_thread(bactrian, *asked, *more, cwd=tmp_path)
    assert done.stdout.split() == ["Baker", "Miller"], done.stderr
    sent = endpoint.requests[0].json
    assert "temperature" not in sent
    assert (sent["reasoning_effort"], sent["service_tier"]) == ("low", "flex")


async def test_models_of_a_recipe_are_asked_where_the_command_names_none(tmp_path: Path) -> None:
    async with Endpoint([said]) as users, Endpoint([said]) as others:
        models = f'[models]\ndefault = "vllm:a@{others.url}"\nuser = "vllm:b@{users.url}"\n'
        (tmp_path / "small.toml").write_text(RECIPE + models)
        done = await asyncio.to_thread(
            bactrian,
            *("generate", "small.toml", "--run", "run.db", "--limit", "1"),
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr
    assert {asks(request) for request in users.requests} == {"user"}
    assert {asks(request) for request in others.requests} == {"assistant", "lister"}


async def test_an_address_in_a_recipe_gets_no_key(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        (tmp_path / "small.toml").write_text(RECIPE + f'[models]\ndefault = "openai:a@{endpoint.url}"\n')
        arguments = ("generate", "small.toml", "--run", "run.db", "--limit", "1")
        done = await asyncio.to_thread(bactrian, *arguments, cwd=tmp_path, OPENAI_API_KEY="sk-secret")
    assert done.returncode == 0, done.stderr
    assert endpoint.requests
    assert not any("Authorization" in request.headers for request in endpoint.requests)


async def test_an_address_in_dotenv_gets_no_key_from_the_environment(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        for line in (f"OPENAI_BASE_URL={endpoint.url}", f"BACTRIAN_BASE_URL={endpoint.url}"):
            (tmp_path / ".env").write_text(line + "\nHTTPS_PROXY=http://evil.invalid\n")
            arguments = ("play", "Bake", "--model", "openai:a")
            done = await asyncio.to_thread(bactrian, *arguments, cwd=tmp_path, OPENAI_API_KEY="sk-secret")
            assert done.returncode == 2
            assert "it is not sent there" in done.stderr
            assert ".env cannot set HTTPS_PROXY" in done.stderr
            assert "secret" not in done.stderr
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--set", "parameters.temperature=hot"), "'hot' is not a value for temperature"),
        (("--set", "parameters.assistant.top_p=7"), "7 is not a value for top_p. It is at most 1."),
        (("--set", "parameters.user.max_tokens=0"), "0 is not a value for max_tokens"),
        (("--set", "parameters.body={messages=1}"), "is not a value for body"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = bactrian("play", "Bake", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(InputError, match=r"no parameter 'temprature'\. Did you mean 'temperature'"):
        read_parameters({"assistant": {"temprature": 1}})


def test_what_is_not_said_stays_as_it_is() -> None:
    assert read_parameters({}).by_agent() == {}
    usual = Sampling(0.2, max_tokens=5, seed=1, extra={"a": 1})
    assert read_parameters({"body": {"b": 2}}).apply(usual).extra == {"a": 1, "b": 2}
    assert read_parameters({"temperature": "none"}).apply(usual).temperature is None
