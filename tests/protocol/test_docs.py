"""docs/prompts.md says what the pack says."""

import re
from pathlib import Path

import pytest

from bactrian.files.template import FILTERS
from bactrian.files.toml import LARGEST
from bactrian.protocol.pack import NEEDED, PLACEHOLDERS, list_packs, load_pack
from bactrian.records.session import LONGEST_IDEA, LONGEST_NAME

DOCS = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text(encoding="utf-8")
CLAUSE = re.compile(r"^\| ([^|]+) \| `(\w+)` \| `([^|]+)` \|$", re.MULTILINE)
TABLES = DOCS[DOCS.index("## Where each clause is") :]


def read_clauses() -> dict[str, list[tuple[str, str, str]]]:
    """The rows of the clause tables, by pack: those of ai-society come first, under no heading of their own."""
    first, *others = re.split(r"^### The pack `([\w-]+)`$", TABLES, flags=re.MULTILINE)
    parts = {"ai-society": first, **dict(zip(others[::2], others[1::2], strict=True))}
    return {name: CLAUSE.findall(part) for name, part in parts.items()}


CLAUSES = read_clauses()


def test_every_built_in_pack_has_a_table_of_clauses() -> None:
    assert {*CLAUSES, "ai-society-small", "plain-small"} == {*list_packs()}


@pytest.mark.parametrize("pack", CLAUSES)
def test_the_words_of_every_clause_are_in_the_template_that_the_table_names(pack: str) -> None:
    templates = load_pack(pack).templates
    assert CLAUSES[pack]
    assert not [row for row in CLAUSES[pack] if row[2] not in templates[row[1]]]


def test_every_row_of_the_clause_tables_is_read_by_these_tests() -> None:
    rows = [line for line in TABLES.splitlines() if line.startswith("| ")]
    headers = [line for line in rows if line == "| clause | template | words |"]
    assert len(headers) >= len(CLAUSES)
    assert len(rows) - len(headers) == sum(map(len, CLAUSES.values()))


@pytest.mark.parametrize("pack", CLAUSES)
def test_every_sentence_of_the_system_prompts_stands_in_the_table(pack: str) -> None:
    templates = load_pack(pack).templates
    clauses = CLAUSES[pack] if pack == "ablated" else CLAUSES[pack] + CLAUSES["ai-society"]
    optional = {row for row in CLAUSES["ai-society"] if row[0].startswith(("answer in one", "the protocol"))}
    for name in ("assistant_system", "user_system"):
        left = templates[name]
        # Longest first: a short one may be part of a longer one.
        for _, template, words in sorted({*clauses, *optional}, key=lambda clause: -len(clause[2])):
            if template == name:
                left = left.replace(words, "")
        sentences = re.findall(r"[A-Za-z][^.:]{12,}[.:]", re.sub(r"\{[{%].*?[%}]\}", "", left))
        assert not [
            text
            for text in sentences
            if not text.splitlines()[-1].startswith(("About me", "I tell you", "You tell me"))
            and text != 'Leave "<CAMEL_TASK_DONE>" exactly as it is.'
        ]


@pytest.mark.parametrize("pack", CLAUSES)
def test_a_pack_has_the_words_of_the_ai_society_where_its_table_says_nothing(pack: str) -> None:
    own, usual = load_pack(pack).templates, load_pack("ai-society").templates
    named = {row[1] for row in CLAUSES[pack]} | ({"user_system", "assistant_system"} & {*own})
    assert [name for name in own if name not in named and own[name] != usual[name]] == []


def test_v2_is_v1_without_the_format_of_the_output() -> None:
    v1, v2 = load_pack("v1").templates, load_pack("v2").templates
    assert {name for name in v1 if v1[name] != v2[name]} == {"assistant_system"}
    assert not re.search("Solution:|Next request", v2["assistant_system"])
    said = set(re.split(r"[\n.]+ ?", v1["assistant_system"]))
    assert {line.removeprefix("- ") for line in re.split(r"[\n.]+ ?", v2["assistant_system"])} <= {
        line.removeprefix("- ") for line in said
    }


def test_the_placeholder_table_is_what_the_code_allows_and_needs() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|`]*(?:`--plan`)?[^|`]* \| ([^|]+) \|$", DOCS, re.MULTILINE)
    assert {name: frozenset(re.findall(r"`(\w+)`", cell)) for name, cell in rows} == PLACEHOLDERS
    assert {name: frozenset(re.findall(r"\*\*`(\w+)`\*\*", cell)) for name, cell in rows} == NEEDED


def test_the_limits_and_the_filters_are_those_of_the_code() -> None:
    assert f"{LARGEST:,} bytes" in DOCS
    assert f"{LONGEST_IDEA:,} characters" in DOCS
    assert f"\n{LONGEST_NAME} in one line" in DOCS
    assert all(f"`{name}`" in DOCS for name in FILTERS)
