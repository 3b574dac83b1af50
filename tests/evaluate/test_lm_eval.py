"""``bactrian evaluate emergence --lm-eval``: table 7's commands, and the results of lm-evaluation-harness."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.emergence.lm_eval import BENCHMARKS, TABLE_7, read_results, write_commands
from tests.helpers.command import bactrian


def write_result(path: Path, task: str, metric: str, value: float, shots: int, model: str = "tuned") -> None:
    """A file as version 0.4 of the harness writes it, with what is read of it."""
    names = {task: shots} if task != "mmlu" else {"mmlu_anatomy": shots, "mmlu_virology": shots}
    content = {
        "results": {task: {"alias": task, f"{metric},none": value, f"{metric}_stderr,none": 0.01}},
        "n-shot": names,
        "config": {"model": "hf", "model_args": f"pretrained={model}"},
        "model_name": model,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_the_commands_ask_with_the_papers_numbers_of_examples() -> None:
    commands = write_commands("my model")
    assert [command.split("--num_fewshot ")[1].split()[0] for command in commands] == ["25", "10", "5", "0"]
    assert all("'pretrained=my model'" in command for command in commands)


def test_the_files_of_one_model_stand_in_one_row_beside_the_papers(tmp_path: Path) -> None:
    for number, one in enumerate(BENCHMARKS):
        shots = 3 if one.task == "hellaswag" else one.shots
        path = tmp_path / "lm-eval" / "tuned" / f"results_{number}.json"
        write_result(path, one.task, one.metric, 0.2 + 0.1 * number, shots)
    done = bactrian("evaluate", "emergence", "--lm-eval", "lm-eval", "--json", cwd=tmp_path)
    (found,) = json.loads(done.stdout)["models"]
    assert found["model"] == "tuned"
    assert found["mean"] == pytest.approx(0.35)
    assert found["scores"]["mmlu"] == {"value": 0.4, "error": 0.01, "shots": 5}
    done = bactrian("evaluate", "emergence", "--lm-eval", "lm-eval", cwd=tmp_path)
    assert "HellaSwag was asked with 3 examples, and the paper used 10." in done.stderr
    assert "CAMEL-13B" in done.stdout and "35.0" in done.stdout
    done = bactrian("evaluate", "emergence", "--lm-eval", cwd=tmp_path)
    assert done.stdout.splitlines() == write_commands("MODEL")


def test_the_papers_means_follow_from_its_rows() -> None:
    means = {name: sum(row) / 4 for name, row in TABLE_7.items()}
    assert {name: round(mean, 1) for name, mean in means.items()} == {
        "LLaMA-13B": 56.1,
        "CAMEL-13B": 58.0,
        "CAMEL-33B": 64.0,
    }


@pytest.mark.parametrize(
    "content", ["no JSON", "[]", '{"results": {"gsm8k": {"acc,none": 1}}}', '{"results": 3}']
)
def test_a_file_without_results_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"results\.json"):
        read_results([path])
    with pytest.raises(InputError, match="no results"):
        (tmp_path / "empty").mkdir()
        read_results([tmp_path / "empty"])
