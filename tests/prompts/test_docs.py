"""docs/prompts.md says what the pack says."""

import re
from pathlib import Path

from bactrian.files.template import FILTERS
from bactrian.files.toml import LARGEST
from bactrian.prompts.pack import load_pack
from bactrian.prompts.templates import NEEDED, PLACEHOLDERS
from bactrian.prompts.values import LONGEST_IDEA, LONGEST_NAME

DOCS = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text(encoding="utf-8")
CLAUSES = re.findall(r"^\| ([^|]+) \| `(\w+)` \| `([^|]+)` \|$", DOCS, re.MULTILINE)


def test_the_words_of_every_clause_are_in_the_template_that_the_table_names() -> None:
    templates = load_pack("ai-society").templates
    assert not [row for row in CLAUSES if row[2] not in templates[row[1]]]


def test_every_row_of_the_clause_tables_is_read_by_these_tests() -> None:
    rows = [
        line for line in DOCS[DOCS.index("## Where each clause is") :].splitlines() if line.startswith("| ")
    ]
    headers = [line for line in rows if line == "| clause | template | words |"]
    assert len(rows) - len(headers) == len(CLAUSES)


def test_every_sentence_of_the_system_prompts_stands_in_the_table() -> None:
    templates = load_pack("ai-society").templates
    for name in ("assistant_system", "user_system"):
        left = templates[name]
        # Longest first: a short one may be part of a longer one.
        for _, template, words in sorted(CLAUSES, key=lambda clause: -len(clause[2])):
            if template == name:
                left = left.replace(words, "")
        sentences = re.findall(r"[A-Za-z][^.:]{12,}[.:]", re.sub(r"\{[{%].*?[%}]\}", "", left))
        assert not [
            text
            for text in sentences
            if not text.splitlines()[-1].startswith(("About me", "I tell you", "You tell me"))
        ]


def test_the_placeholder_table_is_what_the_code_allows_and_needs() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|`]*(?:`--plan`)?[^|`]* \| ([^|]+) \|$", DOCS, re.MULTILINE)
    assert {name: frozenset(re.findall(r"`(\w+)`", cell)) for name, cell in rows} == PLACEHOLDERS
    assert {name: frozenset(re.findall(r"\*\*`(\w+)`\*\*", cell)) for name, cell in rows} == NEEDED


def test_the_limits_and_the_filters_are_those_of_the_code() -> None:
    assert f"{LARGEST:,} bytes" in DOCS
    assert f"{LONGEST_IDEA:,} characters" in DOCS
    assert f"\n{LONGEST_NAME} in one line" in DOCS
    assert all(f"`{name}`" in DOCS for name in FILTERS)
