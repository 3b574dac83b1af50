"""Chat templates for base models that have none."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from bactrian.errors import InputError
from bactrian.files.toml import suggest_name

_SUFFIX = ".jinja"


def list_templates() -> tuple[str, ...]:
    """Return the names of the built-in chat templates."""
    files = resources.files("bactrian.train").joinpath("chat_templates").iterdir()
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX)))


def read_template(name_or_path: str) -> str:
    """Return a chat template: a built-in one by name, or a file in Jinja.

    Raises:
        InputError: neither exists.
    """
    if name_or_path in list_templates():
        folder = resources.files("bactrian.train").joinpath("chat_templates")
        return folder.joinpath(f"{name_or_path}{_SUFFIX}").read_text("utf-8").strip()
    try:
        return Path(name_or_path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"There is no chat template of this name and no such file.{suggest_name(name_or_path, list_templates())}",
            where=name_or_path,
            next=f"Built-in templates: {', '.join(list_templates())}. Or give the path to a file in Jinja.",
        ) from error
