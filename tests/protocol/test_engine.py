"""The engine's own templates: complete, strict, and replaced by a pack where that is allowed."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import bactrian
from bactrian.errors import PromptError
from bactrian.models.model import Model
from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.protocol.pack import OVERRIDABLE, load_engine_prompts, load_pack, render_prompt
from bactrian.records.turn import CriticSettings
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import new_session
from bactrian.store import open_store
from tests.helpers.runs import session
from tests.helpers.scenes import Counting, setup

SOURCE = Path(bactrian.__file__).parent
ENGINE = load_engine_prompts()
PACK = load_pack("ai-society")


def own_pack(folder: Path, engine: str) -> str:
    content = (SOURCE / "protocol" / "packs" / "ai-society.toml").read_text("utf-8")
    path = folder / "own.toml"
    path.write_text(f"{content}\n[engine]\n{engine}\n", "utf-8")
    return str(path)


@pytest.mark.parametrize("name", ENGINE.templates)
def test_a_template_is_given_all_that_it_names_and_nothing_else(name: str) -> None:
    values = {placeholder: f"<{placeholder}>" for placeholder in ENGINE.placeholders[name]}
    assert ENGINE.render(name, **values)
    with pytest.raises(PromptError, match="was given"):
        ENGINE.render(name, **values, another="x")


@pytest.fixture(scope="module")
def code() -> str:
    """All modules of the package, read once."""
    return "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("name", ENGINE.templates)
def test_a_template_is_said_somewhere(name: str, code: str) -> None:
    agent = name.removesuffix("_system")
    is_named = f'"{name}"' in code or f"'{name}'" in code
    assert is_named or (agent != name and f'"{agent}"' in code and '{agent}_system"' in code)


def test_no_value_is_read_as_a_template() -> None:
    said = render_prompt("draft_note", critic="{{ feedback }}", feedback="{% if %}")
    assert "{{ feedback }} has read it and says: {% if %}" in said


def test_no_message_to_a_model_has_its_words_in_python() -> None:
    """Texts of messages and descriptions in schemas are templates or values."""
    found: list[str] = []
    for path in SOURCE.rglob("*.py"):
        code = path.read_text("utf-8")
        if "Message(" not in code and '"description":' not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Message":
                said = [part for argument in node.args[1:] for part in ast.walk(argument)]
            elif isinstance(node, ast.Dict):
                keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
                said = [value for key, value in zip(keys, node.values, strict=True) if key == "description"]
            else:
                continue
            texts = [
                part.value for part in said if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            found += [f"{path}: {text}" for text in texts if re.search(r"[A-Za-z]+[,.]? [A-Za-z]", text)]
    assert found == []


def test_a_pack_may_replace_some_of_them_and_its_hash_tells(tmp_path: Path) -> None:
    pack = load_pack(own_pack(tmp_path, 'critic_nothing_said = "Silence."'))
    assert pack.engine.render("critic_nothing_said") == "Silence."
    assert pack.engine.render("group_opening") == "Begin."
    assert pack.hash != PACK.hash
    assert pack.engine.hash != PACK.engine.hash == ENGINE.hash


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ('critic_again = "What?"', "critic_again"),
        ('critic_wayz = "x"', "critic_way"),
        ('draft_note = "Again: {{ feedback }}"', "lacks critic"),
        ('draft_note = "{{ critic }} {{ feedback }} {{ task }}"', "not defined for it"),
    ],
)
def test_a_pack_replaces_no_other_and_uses_all_that_a_template_is_given(
    tmp_path: Path, engine: str, problem: str
) -> None:
    with pytest.raises(PromptError, match=problem):
        load_pack(own_pack(tmp_path, engine))


async def test_what_a_pack_replaces_is_what_the_critic_is_told(tmp_path: Path) -> None:
    pack = load_pack(own_pack(tmp_path, 'critic_nothing_said = "Silence."'))
    model = Counting(
        Scripted({"user": [[DONE, "Instruction: A.\nInput: None"]], "critic": ["Choice: 1\nYes."]})
    )
    asked = setup(
        critic=CriticSettings("Cook", proposals=2),
        models=dict.fromkeys(("user", "assistant", "critic"), "scripted"),
    )
    models: dict[str, Model] = dict.fromkeys(asked.models, model)
    scene = build_role_play(new_session(asked, pack), pack, models, rules=asked.rules())
    async for _ in play_session(scene):
        pass
    assert "so far:\n\nSilence.\n\nProposals" in model.requests[-1].messages[-1].text


async def test_a_session_keeps_the_hash_and_one_of_an_earlier_version_has_none(tmp_path: Path) -> None:
    made = new_session(setup(), PACK)
    assert made.provenance.engine_hash == ENGINE.hash
    older = replace(session("old"), provenance=replace(made.provenance, engine_hash=None))
    async with open_store(tmp_path / "run.db") as store:
        assert (await store.begin(made)).provenance.engine_hash == ENGINE.hash
        assert (await store.begin(older)).provenance.engine_hash is None


def test_only_templates_that_there_are_can_be_replaced() -> None:
    assert ENGINE.templates.keys() >= OVERRIDABLE
