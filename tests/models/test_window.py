"""A small window: replies shrink to what is left, and what an endpoint says of its window is learnt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bactrian.errors import ContextFull
from bactrian.models.faults import read_window
from bactrian.models.http import Timeouts
from bactrian.models.model import LEAST_REPLY, Request, find_reply_length
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from tests.helpers.endpoint import Answer, Endpoint, Received, completion
from tests.helpers.scenes import played, rounds, scene

WINDOW = 4096
WORDINGS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "OpenAI": lambda prompt, longest: {
        "message": f"This model's maximum context length is {WINDOW} tokens. However, you requested "
        f"{prompt + longest} tokens ({prompt} in the messages, {longest} in the completion).",
        "code": "context_length_exceeded",
    },
    "vLLM": lambda prompt, longest: {
        "message": f"'max_tokens' or 'max_completion_tokens' is too large: {longest}. This model's maximum context "
        f"length is {WINDOW} tokens and your request has {prompt} input tokens.",
        "code": 400,
    },
    "llama.cpp": lambda prompt, _longest: {
        "message": f"request ({prompt} tokens) exceeds the available context size ({WINDOW} tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": prompt,
        "n_ctx": WINDOW,
    },
    "vLLM, a bound": lambda _prompt, longest: {
        "message": f"This model's maximum context length is {WINDOW} tokens. However, you requested {longest} output "
        f"tokens and your prompt contains at least {WINDOW - longest + 1} input tokens, for a total of at least "
        f"{WINDOW + 1} tokens.",
        "code": 400,
    },
    "a wrong count": lambda _prompt, _longest: {
        "message": f"This model's maximum context length is {WINDOW} tokens and your request has 10 input tokens.",
        "code": 400,
    },
    "no numbers": lambda _prompt, _longest: {"message": "context_length_exceeded"},
}


def small(
    wording: str, text: Callable[[int], str]
) -> tuple[Callable[[Received], Answer | dict[str, Any]], list[int]]:
    """A server that enforces a window of 4,096 tokens, at three bytes each; and the room that each reply had."""
    allowed: list[int] = []

    def answer(request: Received) -> Answer | dict[str, Any]:
        prompt = sum(len(message["content"]) for message in request.json["messages"]) // 3
        longest = request.json.get("max_tokens", 0)
        if prompt + longest > WINDOW:
            return Answer({"error": WORDINGS[wording](prompt, longest)}, status=400)
        allowed.append(longest)
        whole = text(len(allowed) - 1)
        cut = whole[: longest * 3]
        usage = {"prompt_tokens": prompt, "completion_tokens": len(cut) // 3}
        return completion(cut, finish="stop" if cut == whole else "length") | {"usage": usage}

    return answer, allowed


def asked(length: int, longest: int) -> Request:
    return Request([Message("user", Text("x" * length))], Sampling(max_tokens=longest))


def test_a_reply_has_what_is_left_down_to_a_least() -> None:
    assert find_reply_length(2048, 1000, WINDOW) == 2048
    assert find_reply_length(2048, 3000, WINDOW) == 1096
    assert find_reply_length(2048, WINDOW - LEAST_REPLY, WINDOW) == LEAST_REPLY
    assert find_reply_length(20, WINDOW - 20, WINDOW) == 20
    with pytest.raises(ContextFull):
        find_reply_length(2048, WINDOW - LEAST_REPLY + 1, WINDOW)


@pytest.mark.parametrize("wording", WORDINGS)
async def test_a_reply_that_does_not_fit_is_asked_to_be_shorter(wording: str) -> None:
    answer, allowed = small(wording, lambda _: "Yes.")
    async with Endpoint([answer] * 12) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        await model.reply(asked(9_000, 2048))
        await model.reply(asked(9_300, 2048))
        await model.close()
    assert [LEAST_REPLY <= room <= 1096 for room in allowed] == [True, True]
    if wording != "no numbers":
        assert len(endpoint.requests) == 3, "the window is learnt from the first refusal"


async def test_a_window_that_is_full_is_full() -> None:
    answer, _ = small("OpenAI", lambda _: "Yes.")
    async with Endpoint([answer] * 9) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        with pytest.raises(ContextFull):
            await model.reply(asked(11_800, 2048))
        await model.close()


async def test_a_window_that_is_given_is_never_asked_for_more() -> None:
    answer, allowed = small("OpenAI", lambda _: "Yes.")
    async with Endpoint([answer] * 3) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url, limits=Timeouts(window=WINDOW))
        await model.reply(asked(3_000, 100))
        await model.reply(asked(3_000, 4096))
        await model.close()
    assert len(endpoint.requests) == len(allowed) == 2


@pytest.mark.parametrize("wording", ["OpenAI", "vLLM", "vLLM, a bound", "llama.cpp"])
async def test_a_small_window_carries_a_whole_session(wording: str) -> None:
    filler = [" ".join(f"word{number}x{word}" for word in range(45)) for number in range(40)]
    texts = [f"{text} {words}." for text, words in zip(rounds(20), filler, strict=True)]
    answer, allowed = small(wording, lambda number: texts[number])
    async with Endpoint([answer] * 200) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        turns, ending = await played(scene(model))
        await model.close()
    assert ending.code == "token_limit"
    used = sum(len(turn.text) for turn in turns) // 3
    assert used > 0.65 * WINDOW, "the session went on until its prompts and words filled the window"
    assert min(allowed) < 1024


async def test_a_small_window_carries_a_list() -> None:
    answer, _ = small("OpenAI", lambda _: "\n".join(f"{n}. Occupation number {n}" for n in range(1, 51)))
    async with Endpoint([answer] * 9) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        request = asked(1_500, 4096)
        reply = await model.reply(request)
        await model.close()
    assert reply.finish == "stop"
    assert reply.text.endswith("Occupation number 50")


def test_words_without_a_number_tell_nothing() -> None:
    assert read_window(b"too long") == (None, None)
