"""The pages of docs/reference are what the code says today."""

from __future__ import annotations

import pytest

from tools.reference.__main__ import FOLDER, PAGES

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "python-api.md" else ()) for name in PAGES]
)
def test_a_page_of_the_reference_is_fresh(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "run `python -m tools.reference`"


def test_every_page_of_the_folder_is_written_from_the_code() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES}
