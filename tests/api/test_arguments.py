"""Arguments of the public functions: unknown names, values of the wrong type, and what single values mean."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.errors import BactrianWarning, MissingExtra
from tests.helpers.command import bactrian, start_python
from tests.helpers.packages import install

SCRIPT = ["Instruction: Name a tea.\nInput: None", "Solution: Sencha.\nNext request.", "<CAMEL_TASK_DONE>"]
LISTED = {"task_specifier": ["Name a green tea."], "user": ["<CAMEL_TASK_DONE>"]}


def play(**options: Any) -> bt.Session:
    """Play the script."""
    chosen: dict[str, Any] = {"model": bt.Scripted(SCRIPT), "specify": False, **options}
    return bt.play("Choose a tea", **chosen)


def recipe(**settings: Any) -> Any:
    """One job of the first data set."""
    return bt.recipe(
        "ai-society", **{"assistant_role": ["Cook"], "user_role": ["Guest"], "task": 1, **settings}
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("specfy", "'specify'"),
        ("max_token", "parameters={'max_tokens': …}"),
        ("temperature", "parameters={'temperature': …}"),
        ("modell", "'model'"),
    ],
)
def test_an_unknown_argument_of_play_is_a_type_error_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=r"play\(\) got an unexpected keyword argument") as caught:
        play(**{name: 1})
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("jugde", r"Did you mean 'judge'\?"), ("modle", "'model'"), ("temperature", "'temperature'.$")],
)
def test_an_unknown_argument_of_an_evaluation_has_a_hint_that_the_evaluation_takes(
    name: str, hint: str
) -> None:
    options: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=rf"^evaluate_agents\(\) .*{hint}"):
        bt.evaluate_agents("run.db", judge="local", **options)


def test_an_unknown_axis_of_a_recipe_names_the_nearest() -> None:
    with pytest.raises(bt.BactrianError, match=r"named 'taks'\. Did you mean 'task'\?"):
        bt.recipe("ai-society", taks=3)


def test_an_unknown_argument_of_a_run_s_sample_names_sample(tmp_path: Path) -> None:
    play(run=tmp_path / "run.db")
    options: dict[str, Any] = {"cuont": 1}
    with pytest.raises(TypeError, match=r"^sample\(\) .* Did you mean 'count'\?"):
        bt.open_run(tmp_path / "run.db").sample(**options)


def test_an_unknown_argument_of_stream_is_a_type_error() -> None:
    async def watch() -> None:
        options: dict[str, Any] = {"specfy": False}
        async for _ in bt.stream("Choose a tea", **options):
            pass

    with pytest.raises(TypeError, match="'specify'"):
        asyncio.run(watch())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("concurency", "'concurrency'"), ("max_messages", "role_play"), ("max_token", "max_tokens")],
)
def test_an_unknown_argument_of_generate_is_a_type_error_with_a_hint(
    name: str, hint: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {name: 2}
    with pytest.raises(TypeError) as caught:
        bt.generate(recipe(), run=tmp_path / "run.db", model=bt.Scripted(LISTED), **options)
    assert hint in str(caught.value)
    assert not (tmp_path / "run.db").exists()


def test_an_unknown_argument_of_export_is_a_type_error(tmp_path: Path) -> None:
    play(run=tmp_path / "run.db")
    options: dict[str, Any] = {"unfinshed": True}
    with pytest.raises(TypeError, match="'unfinished'"):
        bt.open_run(tmp_path / "run.db").export("messages", tmp_path / "out.jsonl", **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protocol", "strict"),
        ("timeout", "x"),
        ("specify", "no"),
        ("max_messages", "four"),
        ("max_messages", 0),
        ("seed", "x"),
        ("language", 5),
        ("assistant", 5),
        ("parameters", 0.3),
        ("endings", 3),
        ("word_limit", 0),
        ("tool_rounds", 0),
        ("run", 5),
        ("window", -1),
    ],
)
def test_a_value_of_the_wrong_type_says_where_and_what_to_give(name: str, value: object) -> None:
    with pytest.raises(bt.BactrianError) as caught:
        play(**{name: value})
    assert caught.value.where == name
    assert caught.value.next


@pytest.mark.parametrize(
    ("name", "value"),
    [("concurrency", 0), ("budget", "a lot"), ("limit", 1.5), ("on_progress", 5), ("retry_failed", "no")],
)
def test_a_value_of_the_wrong_type_for_generate_says_where(name: str, value: object, tmp_path: Path) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(bt.BactrianError) as caught:
        bt.generate(recipe(), run=tmp_path / "run.db", model=bt.Scripted(LISTED), **options)
    assert caught.value.where == name


@pytest.mark.parametrize("nothing", [None, "none"])
def test_none_leaves_a_parameter_out(nothing: str | None) -> None:
    session = play(parameters={"temperature": 0.9, "assistant": {"temperature": nothing}})
    assert session.provenance.sampling["assistant"].temperature is None
    assert session.provenance.sampling["user"].temperature == 0.9


def test_a_source_of_an_unknown_axis_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(bt.BactrianError, match="Did you mean 'task'") as caught:
        bt.generate(
            recipe(), run=tmp_path / "run.db", model=bt.Scripted(LISTED), sources={"tsk": lambda _: ["Teas"]}
        )
    assert caught.value.where == "sources"


def test_a_source_that_returns_a_text_and_not_a_list_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(bt.BactrianError, match="not a list"):
        bt.generate(
            recipe(), run=tmp_path / "run.db", model=bt.Scripted(LISTED), sources={"task": lambda _: "abc"}
        )


def test_a_script_of_one_text_is_one_reply() -> None:
    session = play(model=bt.Scripted("<CAMEL_TASK_DONE>"))
    assert [turn.text for turn in session.turns] == ["<CAMEL_TASK_DONE>"]
    session = play(model=bt.Scripted({"user": "<CAMEL_TASK_DONE>"}))
    assert [turn.text for turn in session.turns] == ["<CAMEL_TASK_DONE>"]


def test_a_thought_of_a_function_is_split_off() -> None:
    session = play(model=lambda _: "<think>Is it done?</think>\n<CAMEL_TASK_DONE>")
    assert session.turns[0].text == "<CAMEL_TASK_DONE>"
    assert session.turns[0].thought == "Is it done?"


def test_a_report_without_its_optional_part_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(run=tmp_path / "run.db")
    run = bt.open_run(tmp_path / "run.db")
    monkeypatch.setitem(sys.modules, "numpy", None)
    for make in (run.report, run.analyze, lambda: run.compare(run)):
        with pytest.raises(MissingExtra, match="analysis"):
            make()


def test_without_a_model_for_all_the_assistants_model_specifies(tmp_path: Path) -> None:
    script = bt.Scripted({"task_specifier": ["Name a green tea."], "user": ["<CAMEL_TASK_DONE>"]})
    session = bt.play("Choose a tea", models={"user": script, "assistant": script})
    assert session.task.specified == "Name a green tea."


def test_a_stream_can_be_left_before_its_end(tmp_path: Path) -> None:
    program = f"""
import asyncio, bactrian as bt

async def watch():
    async for event in bt.stream("Choose a tea", model=bt.Scripted({SCRIPT!r}), specify=False, run="x.db"):
        if type(event).__name__ == "Spoke":
            break

asyncio.run(watch())
print(len(bt.open_run("x.db")))
"""
    assert start_python(program, cwd=tmp_path).finish() == (b"1\n", b"")


def test_an_incomplete_run_is_warned_of_once_with_counts(tmp_path: Path) -> None:
    script = bt.Scripted({"task_specifier": ["Name a tea."], "user": []})
    with pytest.warns(BactrianWarning, match="1 job failed.*retry_failed=True") as caught:
        bt.generate(recipe(task=["Teas"]), run=tmp_path / "run.db", model=script)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_failed_session_is_warned_of_where_it_was_asked_for_and_says_why() -> None:
    with pytest.warns(BactrianWarning, match="failed after 1 turn: ") as caught:
        session = play(model=bt.Scripted(SCRIPT[:1]))
    assert caught[0].filename == __file__
    assert session.ending is not None
    assert session.ending.evidence in str(session)
    assert "no line 2" in session._repr_html_()


def test_a_transcript_shows_tool_calls_and_thoughts() -> None:
    def price(tea: str) -> float:
        """Return the price of a tea."""
        return 4.5

    script = {
        "user": ["Instruction: What does it cost?\nInput: None", "<CAMEL_TASK_DONE>"],
        "assistant": ['Call: price {"tea": "sencha"}', "<think>Cheap.</think>Solution: 4.5.\nNext request."],
    }
    session = play(model=bt.Scripted(script), tools=[price])
    for shown in (str(session), session._repr_html_()):
        assert "calls price" in shown
        assert "price says: 4.5" in shown
        assert "thinks: Cheap." in shown


@pytest.mark.parametrize("named", [["bell"], "bell"], ids=["in a list", "alone"])
def test_a_tool_of_an_installed_package_is_called_by_its_name(
    named: str | list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = 'def ring(times: int) -> str:\n    """Ring a bell."""\n    return "dong " * times\n'
    install(tmp_path, "acme_bell", code, "bactrian.tools", "bell = acme_bell:ring")
    monkeypatch.syspath_prepend(str(tmp_path))
    script = {
        "user": ["Instruction: Ring.\nInput: None", "<CAMEL_TASK_DONE>"],
        "assistant": ['Call: ring {"times": 2}', "Solution: It rang.\nNext request."],
    }
    session = play(model=bt.Scripted(script), tools=named)
    assert "ring says: dong dong" in str(session)


def test_the_package_lists_its_public_names_only() -> None:
    assert dir(bt) == sorted(bt.__all__)


@pytest.mark.parametrize("field", ["top_k", "[", "=4"])
def test_a_field_of_the_body_without_a_value_is_refused(field: str, tmp_path: Path) -> None:
    done = bactrian("roles", "Choose a tea", "--body", field, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("bactrian: --body: ")


def test_a_session_is_resumed_by_its_run(tmp_path: Path) -> None:
    script = tmp_path / "replies.json"
    asked = [f"Instruction: Name number {number}.\nInput: None" for number in (1, 2)]
    script.write_text(json.dumps({"user": asked, "assistant": ["Sencha.", "Matcha."]}))
    path = tmp_path / "tea.db"
    begun = bt.play("tea", model=f"scripted:{script}", specify=False, run=path, max_messages=2)
    assert begun.ending is not None
    assert begun.ending.code == "max_messages"
    run = bt.open_run(path)
    run.resume(begun.id, max_messages=4)
    assert len(run[begun.id].turns) == 4
    with pytest.raises(bt.BactrianError, match="Every session has ended"):
        run.resume()
    with pytest.raises(bt.BactrianError, match="script"):
        run.resume(max_messages=6)
