"""``bactrian evaluate pairwise``: two models on the same questions."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.question_sets import SETS, load_questions
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Endpoint

WORSE_FIRST = ["I solve it.\nAssistant 1: 2\nAssistant 2: 9", "I solve it.\nAssistant 1: 9\nAssistant 2: 2"]


def test_two_models_are_compared_on_a_set_whose_judge_solves_first(tmp_path: Path) -> None:
    script = {"first": ["Four."], "second": ["It is four, as two and two are."], "judge": WORSE_FIRST}
    (tmp_path / "script.json").write_text(json.dumps(script))
    models = ("scripted:script.json", "scripted:script.json")
    options = ("--questions", "math", "--judge", "scripted:script.json", "--limit", "5", "--out", "here")
    done = bactrian("evaluate", "pairwise", *models, *options, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (compared,) = json.loads(done.stdout)["comparisons"]
    assert compared["counts"] == {"draw": 0, "loss": 5, "win": 0, "unreadable": 0}
    assert compared["paper"] == []  # Its figures are those of other models.
    assert (tmp_path / "here" / "verdicts.scripted-script.json.math.db").exists()


@pytest.mark.system
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_while_solutions_are_written_asks_no_judge(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    async with Endpoint([lambda _: asyncio.sleep(0.2, "Four.")]) as endpoint:
        words = ("evaluate", "pairwise", "openai:a", "openai:b", "--questions", "math", "--out", "here")
        asked = ("--judge", "openai:judge", "--concurrency", "1", "--base-url", endpoint.url)
        command = Command((*words, *asked), tmp_path, clean_environment())
        while not endpoint.requests:
            assert command.returncode is None, command.peek()
            await asyncio.sleep(0.05)
        command.send_signal(sent)
        _, told = await command.communicate()
    assert command.returncode == code, told.decode()
    assert "All results so far are stored" in told.decode()
    assert {request.json["model"] for request in endpoint.requests} <= {"a", "b"}
    assert not list((tmp_path / "here").glob("verdicts*"))


def test_the_sets_have_as_many_questions_as_the_papers() -> None:
    counts = {name: len(set(load_questions(name).questions)) for name in SETS}
    assert counts == {"ai-society": 20, "code": 20, "math": 20, "science": 60}


def test_a_file_of_questions_is_read_and_a_bad_one_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "Why?"}\n\nHow?\n')
    assert load_questions(str(path)).questions == ("Why?", "How?")
    path.write_text('{"text": "Why?"}\n{"question": "How?"}\n')
    with pytest.raises(InputError, match="no `text`"):
        load_questions(str(path))
    with pytest.raises(InputError, match=r"no set of questions 'maths'.*math"):
        load_questions("maths")
