"""A text is shown as the tokens that the built-in model reads, and only where that model wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Page, expect

from bactrian.explore.layout import (
    Vocabulary,
    arrange_turn,
    can_show_tokens,
    load_vocabulary,
    show_tokens,
    split_tokens,
)
from bactrian.models.local.llama_server import start_server
from bactrian.models.local.weights import BUILT_IN, find_cache_folder
from bactrian.records.text import Text
from bactrian.records.turn import Turn
from tests.helpers.browser import find_barriers
from tests.helpers.explorer import explore, run_apart
from tests.helpers.runs import make_run, session, turn

# Before the tests of this folder get a cache of their own.
WEIGHTS = find_cache_folder()
TEXTS = (
    "Instruction: Plan it.\nInput: None",
    "a   5 a   b\n\ny\r\n z  ",
    "it's we'll I'D 'tis ''s",
    "12345 67 1.5 x² Ⅷ ½ ٣",
    "naïve café 東京の天気 😀👍🏽 a\u0301",
    "tab\there\u00a0and\u2003there",
    "```python\ndef __init__(self):\n    return x+1\n```",
    "<|im_end|> is no end",
    " ",
)


@pytest.fixture(autouse=True)
def weights(cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the built-in model's file be where it is."""
    monkeypatch.setenv("BACTRIAN_CACHE", str(WEIGHTS))


def write_built_in(text: str) -> Turn:
    """A turn of the built-in model."""
    return replace(turn(2, text), text=Text(text), model=Path(BUILT_IN.file).stem)


def test_pairs_are_merged_by_rank_and_no_byte_is_lost() -> None:
    vocabulary = Vocabulary({}, {(b"a", b"b"): 0, (b"ab", b"c"): 1, (b"b", b"c"): 2, (b"\xc3", b"\xa9"): 3})
    assert list(split_tokens("abcbc", vocabulary)) == [b"abc", b"bc"]
    assert show_tokens("é€", vocabulary) == ("é", "⟨E2⟩", "⟨82⟩", "⟨AC⟩")
    for text in TEXTS:
        assert b"".join(split_tokens(text, vocabulary)).decode() == text


@pytest.mark.slow
async def test_the_tokens_are_those_of_the_built_in_model() -> None:
    vocabulary = load_vocabulary()
    assert vocabulary is not None
    random = Random(7)
    strange = [
        "".join(random.choice("ab Z 9 \n\t'.,_é東😀²\u00a0sdt") for _ in range(40)) for _ in range(100)
    ]
    llama = await start_server(find_cache_folder() / BUILT_IN.file, slots=1, window=2048)
    try:
        for text in (*TEXTS, *strange):
            ids = [vocabulary.ids.get(token) for token in split_tokens(text, vocabulary)]
            assert ids == list(await llama.tokens(llama.safe(text), begins=False)), text
    finally:
        await llama.close()


@pytest.mark.system
def test_only_what_the_built_in_model_wrote_is_shown_as_tokens() -> None:
    said = "Solution: Green tea."
    (shown,) = arrange_turn(write_built_in(said), [], (), view="tokens")
    assert "".join(shown.tokens) == said
    (other,) = arrange_turn(turn(2, said), [], (), view="tokens")
    assert (other.name, other.tokens) == ("Solution", ())
    assert can_show_tokens([turn(1, "x"), write_built_in(said)])
    assert not can_show_tokens([turn(1, "x")])


@pytest.mark.slow
def test_a_reader_switches_to_the_tokens_and_back(tmp_path: Path, page: Page) -> None:
    talk = session("talk", texts=["Instruction: Name a tea.\nInput: None", "Solution: Sencha, 80 °C."])
    own = replace(
        talk, id="own", turns=(talk.turns[0], replace(talk.turns[1], model=Path(BUILT_IN.file).stem))
    )
    run_apart(make_run(tmp_path / "run.db", [talk, own]))
    with explore(tmp_path, "run.db", BACTRIAN_CACHE=str(WEIGHTS)) as explorer:
        page.goto(explorer.link("/c/run/talk"))
        expect(page.get_by_role("link", name="Tokens", exact=True)).to_have_count(0)
        page.goto(f"{explorer.address}/c/run/own")
        page.keyboard.press("t")
        expect(page.locator("#turn-2 .tokens")).to_have_text("Solution: Sencha, 80 °C.")
        assert page.locator("#turn-2 .tokens span").count() > 8
        expect(page.get_by_text("What the built-in model wrote is shown as its tokens")).to_be_visible()
        expect(page.locator("#turn-1 .read").first).to_be_visible()
        assert find_barriers(page) == []
        page.keyboard.press("r")
        expect(page.locator(".tokens")).to_have_count(0)
