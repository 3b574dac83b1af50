"""Examples: what is learned, and how long conversations are split. The tokens here are letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bactrian.errors import InputError
from bactrian.models.local.chat_text import encode_protected, protect_controls
from bactrian.train.training_data import ChatMessage
from bactrian.train.training_examples import (
    IGNORED,
    CutCounts,
    Cutter,
    Example,
    cut_conversation,
)

CONTROLS = ("<s>", "</s>")


def render(messages: Sequence[ChatMessage], add: bool) -> str:
    text = "".join(f"<s>{message['role']}\n{message['content']}</s>\n" for message in messages)
    return text + "<s>assistant\n" if add else text


def encode(text: str) -> list[int]:
    return list(map(ord, text))


CUTTER = Cutter(render, encode, ("</s>",), CONTROLS)


def chat(*texts: str, system: str = "") -> list[ChatMessage]:
    roles = ("user", "assistant") * len(texts)
    told = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return [{"role": "system", "content": system}, *told] if system else told


def show(example: Example) -> str:
    """The text of an example, with brackets around what is learned."""
    return "".join(
        f"[{chr(token)}]" if label != IGNORED else chr(token)
        for token, label in zip(example.ids, example.labels, strict=True)
    ).replace("][", "")


def cut(
    messages: list[ChatMessage], max_length: int = 1000, cutter: Cutter = CUTTER
) -> tuple[list[Example], CutCounts]:
    counts = CutCounts()
    return list(cut_conversation("one", messages, cutter, max_length, counts)), counts


def test_the_replies_and_their_stop_tokens_are_learned_and_nothing_else() -> None:
    (example,), counts = cut(chat("Hi", "Ho", "And?", "So."))
    assert show(example) == (
        "<s>user\nHi</s>\n<s>assistant\n[Ho</s>]\n<s>user\nAnd?</s>\n<s>assistant\n[So.</s>]"
    )
    assert (counts.conversations, counts.pairs, counts.split) == (1, 2, 0)


def test_what_is_learned_follows_exactly_the_text_that_play_would_send() -> None:
    messages = chat("Hi", "Ho", "And?", "So.", system="Be short.")
    pieces = CUTTER.render_pieces(messages)
    sent = "".join(piece.text for piece in pieces[:-1])
    assert sent == render(messages[:-1], True)


def test_an_unanswered_message_at_the_end_is_left_out() -> None:
    (example,), _ = cut(chat("Hi", "Ho", "Are you there?"))
    assert "there" not in show(example)


def test_a_long_conversation_is_split_at_pairs_each_with_the_system_prompt() -> None:
    messages = chat("A?", "a", "B?", "b", "C?", "c", system="S")
    examples, counts = cut(messages, max_length=95)
    shown = [show(example) for example in examples]
    assert len(shown) == 2
    assert all(text.startswith("<s>system\nS</s>") for text in shown)
    assert ["A?" in text for text in shown] == [True, False]
    assert sum(text.count("[") for text in shown) == counts.pairs == 3
    assert counts.split == 1
    assert all(len(example.ids) <= 95 for example in examples)


def test_a_pair_that_does_not_fit_alone_is_cut_off_in_its_reply() -> None:
    examples, counts = cut(chat("A?", "a", "B?", "b" * 90, "C?", "c"), max_length=60)
    assert [show(example).count("[") for example in examples] == [1, 1, 1]
    assert len(examples[1].ids) == 60
    assert not show(examples[1]).endswith("</s>]")
    assert (counts.truncated, counts.lost) == (1, [])


def test_a_pair_whose_request_fills_the_example_is_lost_and_named() -> None:
    examples, counts = cut(chat("A?" * 50, "a", "B?", "b"), max_length=60)
    assert [show(example).count("[") for example in examples] == [1]
    assert counts.lost == ["one"]
    counts.check(0.5, "here")
    with pytest.raises(InputError, match="1 of 2 pairs are too long.*one"):
        counts.check(0.01, "here")


def test_an_empty_reply_is_not_learned_and_stays_a_part_of_what_was_said() -> None:
    (example,), counts = cut(chat("Hi", " \n", "And?", "So.", "Bye", ""))
    assert show(example) == (
        "<s>user\nHi</s>\n<s>assistant\n \n</s>\n<s>user\nAnd?</s>\n<s>assistant\n[So.</s>]"
    )
    assert (counts.pairs, counts.empty) == (3, 2)


def test_a_conversation_of_empty_replies_gives_no_example_also_where_it_is_split() -> None:
    messages = chat("A?" * 20, "", "B?" * 20, "b", "C?" * 20, "")
    examples, counts = cut(messages, max_length=80)
    assert [show(example).count("[") for example in examples] == [1]
    assert (counts.pairs, counts.empty, counts.truncated, counts.lost) == (3, 2, 0, [])
    assert cut(chat("A?", "", "B?", " "))[0] == []


def test_the_name_of_a_control_token_in_a_message_is_plain_text() -> None:
    spelt: list[str] = []

    def spell(name: str) -> list[int]:
        spelt.append(name)
        return [-1]

    cutter = replace(CUTTER, encode=lambda text: encode_protected(text, CONTROLS, encode, spell))
    (example,), _ = cut(chat("Say </s>", "No: </s> and <s>"), cutter=cutter)
    assert spelt == ["</s>", "</s>", "<s>"]
    assert example.labels.count(-1) == 2
    assert protect_controls("a</s>\ufdd0", CONTROLS) == "a\ufdd01\ufdd1\ufffd"


def test_a_template_that_trims_replies_is_learned_as_it_writes_them() -> None:
    def trim(messages: Sequence[ChatMessage], add: bool) -> str:
        return render([{**message, "content": message["content"].strip()} for message in messages], add)

    (example,), _ = cut(chat("Hi", "  Ho\n"), cutter=replace(CUTTER, render=trim))
    assert show(example).endswith("[Ho</s>]")


def show_last_only(messages: Sequence[ChatMessage], add: bool) -> str:
    last = max(number for number, message in enumerate(messages) if message["role"] == "user")
    return render(
        [message for number, message in enumerate(messages) if message["role"] == "user" or number > last],
        add,
    )


def say_twice(messages: Sequence[ChatMessage], add: bool) -> str:
    return render([{**message, "content": message["content"][::-1]} for message in messages], add)


@pytest.mark.parametrize(
    ("cutter", "message"),
    [
        (replace(CUTTER, render=show_last_only), "shows earlier messages in another way"),
        (replace(CUTTER, render=say_twice), "changes what the assistant says"),
        (replace(CUTTER, stops=("<eot>",)), "ends no reply with a stop token"),
    ],
    ids=["it hides earlier replies", "it changes replies", "it writes no stop token"],
)
def test_a_template_that_play_would_contradict_is_refused(cutter: Cutter, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cut(chat("Hi", "Ho", "And?", "So."), cutter=cutter)
