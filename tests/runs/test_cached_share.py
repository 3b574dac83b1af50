"""The measured share of the prefix cache: told alike by progress, status and report, with a warning where it is low."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import Command, clean_environment
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, generate, said


def reporting(cached: int) -> Endpoint:
    """An endpoint that reports so many cached tokens of a hundred."""

    def answer(request: Received) -> Plan:
        details = {"cached_tokens": cached}
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": details}
        return completion(said(request)) | {"usage": usage}

    return Endpoint([answer])


async def run(folder: Path, *command: str) -> str:
    process = Command(command, folder, clean_environment())
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.parametrize(
    ("provider", "cached", "warning"),
    [
        ("vllm", 20, "only 20 %"),
        ("vllm", 0, "reports no cached tokens"),
        ("sglang", 90, ""),
        ("openai", 20, "only 20 %"),
        ("openai", 0, ""),  # Nobody knows whether it has a cache.
    ],
)
async def test_a_low_share_at_a_server_of_ones_own_is_a_warning_everywhere(
    tmp_path: Path, provider: str, cached: int, warning: str
) -> None:
    (tmp_path / "small.toml").write_text(RECIPE.replace("max_messages = 4", "max_messages = 8"))
    async with reporting(cached) as endpoint:
        name = f"{provider}:m@{endpoint.url}"
        code, lines, err = await generate(tmp_path, None, "--model", name, "--limit", "2", "--json")
    assert code == 0, err
    status = json.loads(await run(tmp_path, "status", "run.db", "--json"))
    report = json.loads(await run(tmp_path, "analyze", "run.db", "--json"))
    told = [lines[-1]["cache_warning"], status["cache_warning"], report["usage"]["cache_warning"]]
    assert len({*told}) == 1
    assert warning in told[0]
    assert bool(told[0]) == bool(warning)
    assert (warning in await run(tmp_path, "status", "run.db")) or not warning
