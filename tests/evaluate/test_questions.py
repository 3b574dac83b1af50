"""``bactrian evaluate questions``: sets of questions that a model writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bactrian.errors import BadReply
from bactrian.evaluate.question_sets import ask_questions, load_questions
from bactrian.models.model import Reply, Request
from bactrian.models.scripted import Scripted
from tests.helpers.command import bactrian


class Recorder(Scripted):
    """A scripted model that keeps what it was asked."""

    asked: list[str]

    async def reply(self, request: Request) -> Reply:
        self.asked = [*getattr(self, "asked", []), str(request.messages[-1].text)]
        return await super().reply(request)


async def test_a_model_is_shown_three_examples_and_none_of_them_is_taken_over() -> None:
    model = Recorder({"lister": ["1. Why is tea green?\n2. Who drinks {{ tea }}?\n3. Why?"]})
    questions = await ask_questions(model, "tea", ["Why?", "{{ What }}?", "When?", "Never shown?"], 3)
    assert questions == ["Why is tea green?", "Who drinks {{ tea }}?"]
    assert "- {{ What }}?" in model.asked[0] and "Never shown" not in model.asked[0]


async def test_a_model_that_writes_no_questions_is_named() -> None:
    with pytest.raises(BadReply, match="no questions"):
        await ask_questions(Recorder({"lister": ["1. Why?"] * 9}), "tea", ["Why?"], 2)


def test_the_file_is_a_set_that_is_never_overwritten(tmp_path: Path) -> None:
    lines = ["1. Who may keep bees?\n2. What is honey?"]
    (tmp_path / "script.json").write_text(json.dumps({"lister": lines}))
    command = ("evaluate", "questions", "code", "--model", "scripted:script.json", "--count", "2")
    done = bactrian(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "code.questions.jsonl"
    assert load_questions(str(path)).questions == ("Who may keep bees?", "What is honey?")
    (tmp_path / "script.json").write_text("{}")  # a model that is asked once more says nothing
    again = bactrian(*command, cwd=tmp_path)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
