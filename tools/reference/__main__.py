"""``python -m tools.reference``: write the pages of docs/reference anew from the code."""

from __future__ import annotations

from pathlib import Path

from tools.reference.codes import write_exit_codes, write_variables
from tools.reference.commands import write_commands
from tools.reference.python_api import write_python_api
from tools.reference.schema import write_schema
from tools.reference.settings import write_settings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "command-line.md": write_commands,
    "python-api.md": write_python_api,
    "recipe-schema.md": write_schema,
    "settings.md": write_settings,
    "exit-codes.md": write_exit_codes,
    "environment.md": write_variables,
}
"""What writes each page. tests/docs/test_reference.py fails if a page is not what its function returns."""


def main() -> None:
    """Write all pages."""
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), "utf-8")


if __name__ == "__main__":
    main()
