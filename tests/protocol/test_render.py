"""What a person or a model said comes out of a template as it went in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.errors import InputError, PromptError
from bactrian.protocol.pack import PLACEHOLDERS, list_packs, load_pack

PACK = load_pack("ai-society")
VALUES: dict[str, str | int] = {
    "task": "Build a trading bot",
    "assistant_role": "Python Programmer",
    "user_role": "Stock Trader",
    "assistant_description": "",
    "user_description": "",
    "critic_role": "Broker",
    "criteria": "progress",
    "language": "",
    "word_limit": 50,
}


def render(template: str, **changed: str | int) -> str:
    values = VALUES | changed
    return PACK.render(template, **{name: values[name] for name in PLACEHOLDERS[template]})


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
hostile = st.sampled_from(
    [
        "{{ 7*7 }}",
        "{% raw %}",
        "{# no #}",
        "{% endif %}",
        "{task}",
        "{0.__class__}",
        "%s",
        "&<>\"'",
        "\r\n",
        "مرحبا",
        "👩‍👩‍👧",
    ]
)


@settings(max_examples=20)
@given(parts=st.lists(texts | hostile).map("".join), name=texts | hostile)
@pytest.mark.parametrize(
    "template", ["task_specifier", "task_planner", "assistant_system", "user_system", "critic"]
)
def test_any_text_comes_out_verbatim(template: str, parts: str, name: str) -> None:
    around = render(template, task="\ue000", assistant_role="\ue001")
    expected = around.replace("\ue001", name).replace("\ue000", parts)
    if not {"\ue000", "\ue001"} & set(name + parts):
        assert render(template, task=parts, assistant_role=name) == expected


def test_a_role_that_holds_a_placeholder_is_not_filled_again() -> None:
    prompt = render("assistant_system", assistant_role="{{ task }}", task="Build a trading bot")
    assert "You play {{ task }} and you solve." in prompt
    assert prompt.count("Build a trading bot") == 1


@pytest.mark.parametrize("template", PLACEHOLDERS)
def test_a_nul_is_refused_by_the_name_of_its_field(template: str) -> None:
    for placeholder in PLACEHOLDERS[template] - {"word_limit"}:
        with pytest.raises(InputError, match=f"The {placeholder} contains a NUL"):
            render(template, **{placeholder: "a\0b"})


@pytest.mark.parametrize("template", PLACEHOLDERS)
@pytest.mark.parametrize("language", ["", "Deutsch"])
def test_a_prompt_neither_begins_nor_ends_with_space_and_leaves_no_gap(template: str, language: str) -> None:
    prompt = render(template, language=language)
    assert prompt == prompt.strip()
    assert "\n\n\n" not in prompt


@pytest.mark.parametrize("template", ["assistant_system", "user_system"])
def test_a_system_prompt_is_short_enough_for_a_small_model(template: str) -> None:
    assert len(render(template).split()) <= 300


def test_two_agents_with_the_same_role_are_told_apart_by_what_they_do() -> None:
    same = {"assistant_role": "Chemist", "user_role": "Chemist"}
    assert "You play Chemist and you solve. I play Chemist and I instruct." in render(
        "assistant_system", **same
    )
    assert "You play Chemist and you instruct. I play Chemist and I solve." in render("user_system", **same)
    assert "Chemist instructs and Chemist solves" in render("critic", **same)


@pytest.mark.parametrize("template", sorted(PLACEHOLDERS.keys() - {"opening_request"}))
def test_a_language_is_asked_for_only_if_one_is_given(template: str) -> None:
    assert "write in Español" in render(template, language="Español")
    assert "language" not in render(template)


def test_descriptions_are_told_to_both_sides_each_from_its_own_view() -> None:
    told = {"assistant_description": "Knows Python.", "user_description": "Knows stocks."}
    assistant, user = render("assistant_system", **told), render("user_system", **told)
    assert "About you: Knows Python.\nAbout me: Knows stocks.\n" in assistant
    assert "About you: Knows stocks.\nAbout me: Knows Python.\n" in user
    assert "About" not in render("assistant_system") + render("user_system")


def test_both_legal_shapes_are_shown_to_the_user_as_they_are_read() -> None:
    prompt = render("user_system")
    assert "\nInstruction: <what to do>\nInput: <what is needed to do it>\n" in prompt
    assert "\nInstruction: <what to do>\nInput: None\n" in prompt


LEFT_OUT = {
    "v2": {"Solution:", "Next request."},
    "plain-small": {
        "Solution:",
        "Next request.",
        "Instruction:",
        "Input:",
        "Input: None",
        "<CAMEL_TASK_DONE>",
    },
    "ablated": {"Solution:", "Next request.", "Instruction:", "Input:", "Input: None"},
}
"""Words of the protocol that a pack leaves out: that is what it is for."""


@pytest.mark.parametrize("name", list_packs())
def test_every_built_in_pack_names_the_protocols_words_and_tells_the_task_verbatim(name: str) -> None:
    task = "{{ task }}\n  a <b> & 'c' \u202e"
    values = {key: VALUES[key] for key in PLACEHOLDERS["user_system"]} | {"task": task}
    axes = dict.fromkeys(load_pack(name).axes, "x")
    assistant, user = (
        load_pack(name).render(f"{side}_system", axes, **values) for side in ("assistant", "user")
    )
    assert task in assistant
    assert task in user
    left_out = LEFT_OUT.get(name, set())
    for word in ("Solution:", "Next request."):
        assert (word in assistant) == (word not in left_out)
    for word in ("Instruction:", "Input:", "Input: None", "<CAMEL_TASK_DONE>"):
        assert (word in user) == (word not in left_out)


def test_the_word_limit_is_the_one_given() -> None:
    assert "Use 17 words at most." in render("task_specifier", word_limit=17)


def test_a_missing_value_is_named_never_left_as_a_hole() -> None:
    with pytest.raises(PromptError) as caught:
        PACK.render("task_planner", task="x", user_role="y", language="")
    assert "was given language, task, user_role." in caught.value.what
    assert caught.value.next == "It takes assistant_role, language, task, user_role."


def test_a_value_too_many_is_refused() -> None:
    with pytest.raises(PromptError, match=r"was given .*, weather"):
        PACK.render("critic", **{name: VALUES[name] for name in PLACEHOLDERS["critic"]}, weather="fine")


def test_an_unknown_template_gets_the_nearest_name() -> None:
    with pytest.raises(PromptError, match="Did you mean 'user_system'"):
        PACK.render("user_sytem")
