"""The tool by which an embodied agent draws: by rules on this computer, or by a model of pictures at an endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bactrian.errors import InputError
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import to_file_name
from bactrian.roleplay.drawing import draw_description
from bactrian.roleplay.tool_sources import BY_RULES, FunctionTool
from bactrian.roleplay.tools import ToolFailed

# How files of pictures begin, and how their names end.
_KINDS = (
    (b"\x89PNG", ".png"),
    (b"\xff\xd8", ".jpg"),
    (b"RIFF", ".webp"),
    (b"GIF8", ".gif"),
    (b"<svg", ".svg"),
)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that an action made for the agent."""

    name: str
    content: bytes
    about: str  # What the agent is told of it


class FileTool(FunctionTool):
    """A function that returns a :class:`NewFile`. Only an embodied agent has a folder for it."""

    async def run(self, arguments: str) -> str:  # noqa: ARG002
        """Refuse the call of an agent without a folder. Raises ToolFailed."""
        raise ToolFailed(render_prompt("tool_needs_body", name=self.tool.name))

    async def make_file(self, arguments: str) -> NewFile:
        """Call the function. Raises the errors of :meth:`FunctionTool.run`."""
        made = await self.call(arguments)
        assert isinstance(made, NewFile)
        return made


@asynccontextmanager
async def open_picture_tool(painter: str) -> AsyncGenerator[FileTool]:
    """Open the tool ``draw_image``; ``painter`` is ``svg``, or the name of a model with an images endpoint.

    Raises:
        InputError: there is no such model, or it is not at an endpoint.
    """
    if painter == BY_RULES:
        yield FileTool(draw_image)
        return
    from bactrian.models.open import ModelOptions, open_model
    from bactrian.models.openai import OpenAIModel

    # A recipe of somebody else may name the address: a key goes to the provider's own alone.
    model = open_model(painter, ModelOptions(distrusted=frozenset((painter,))))
    if not isinstance(model, OpenAIModel):
        raise InputError(
            "This model has no endpoint that draws.",
            where=painter,
            next=f"Name one as PROVIDER:MODEL, or {BY_RULES!r} to draw by rules.",
        )

    async def ask_model(description: str, file: str) -> NewFile:
        content = await model.draw(description)
        return NewFile(_name_file(file, content), content, f"drawn by {model.name}")

    ask_model.__name__, ask_model.__doc__ = draw_image.__name__, draw_image.__doc__
    ask_model.__annotations__ = draw_image.__annotations__
    try:
        yield FileTool(ask_model)
    finally:
        await model.close()


def draw_image(
    description: Annotated[str, Field(min_length=1, max_length=4000)],
    file: Annotated[str, Field(min_length=1, max_length=200)],
) -> NewFile:
    """Draw a picture of what is described in words, and save it as a file. Return the file's name."""
    drawing = draw_description(description)
    content = drawing.svg.encode()
    about = f"drawn by rules: {', '.join(drawing.drawn) or 'nothing'}"
    about += f"; not drawn: {', '.join(drawing.left_out)}" if drawing.left_out else ""
    return NewFile(_name_file(file, content), content, about)


def _name_file(name: str, content: bytes) -> str:
    """Return a safe name for a picture, with the ending of its kind."""
    ending = next((ending for begin, ending in _KINDS if content.startswith(begin)), "")
    plain = to_file_name(name)
    return (
        plain if plain.lower().endswith((ending, ".jpeg") if ending == ".jpg" else ending) else plain + ending
    )
