"""The tool by which an embodied agent draws: by rules on this computer, or by a model of pictures at an endpoint."""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Annotated, NamedTuple

from pydantic import Field

from bactrian.errors import InputError
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import to_file_name, to_line
from bactrian.roleplay.tools import BY_RULES, FunctionTool, ToolFailed

# Draws a description by rules, as SVG: the things that it names and this program knows, in their numbers and colours.
#
# No model draws, so the same words give the same picture. What was not drawn is said.


_WORD = re.compile(r"[^\W_]+")
_SMALL = frozenset(
    "a all and as at by each file for from in into image it of on or picture svg the to under with".split()
)
_NUMBER = re.compile(r"[0-9]{1,3}")
_LONGEST = 300  # Words of a description that are read
_MOST = 12  # Of one thing
_REACH = 3  # Words before a thing that may say its number or colour
_WIDTH, _HEIGHT, _HORIZON = 640, 400, 250
_LINE = 84  # Characters of a line below the picture


@dataclass(frozen=True, slots=True)
class Thing:
    """What can be drawn, in a box of 100 × 100."""

    svg: str
    colour: str
    place: str = "ground"


class Drawing(NamedTuple):
    """A picture, and what its description has become."""

    svg: str
    drawn: tuple[str, ...]  # As in `2 camel`
    left_out: tuple[str, ...]  # Words that are nothing here


class _Vocabulary(NamedTuple):
    things: Mapping[str, Thing]
    numbers: Mapping[str, int]
    colours: frozenset[str]
    grounds: Mapping[str, str]
    skies: Mapping[str, str]


@cache
def _load_vocabulary() -> _Vocabulary:
    data = tomllib.loads(files("bactrian.roleplay").joinpath("drawing.toml").read_text("utf-8"))

    def split(table: Mapping[str, str]) -> dict[str, str]:
        return {word: colour for words, colour in table.items() for word in words.split()}

    things: dict[str, Thing] = {}
    for row in data["things"]:
        words = row.pop("words").split()
        things.update(dict.fromkeys(words, Thing(**row)))
    colours = frozenset(data["colours"].split())
    return _Vocabulary(things, data["numbers"], colours, split(data["grounds"]), split(data["skies"]))


def draw_description(description: str) -> Drawing:
    """Return the picture of ``description``."""
    known = _load_vocabulary()
    description = to_line(description)
    words = [_find_singular(word, known) for word in _WORD.findall(description.lower())[:_LONGEST]]
    ground = next((known.grounds[word] for word in words if word in known.grounds), "#cfd8c0")
    sky = next((known.skies[word] for word in words if word in known.skies), "#cfe4f2")
    drawn = list(_find_things(words, known))
    meant = (
        known.things.keys() | known.numbers.keys() | known.colours | known.grounds.keys() | known.skies.keys()
    )
    left_out = [word for word in words if word not in meant | _SMALL]
    told = tuple(f"{count} {word}" for word, count, _ in drawn)
    left = tuple(dict.fromkeys(word for word in left_out if not word.isdigit()))
    lines = [description, f"Drawn by rules, not by a model: {', '.join(told) or 'nothing that they know'}."]
    if left:
        lines.append(f"Not drawn: {', '.join(left)}.")
    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{sky}"/>']
    parts.append(f'<rect y="{_HORIZON}" width="{_WIDTH}" height="{_HEIGHT - _HORIZON}" fill="{ground}"/>')
    for place in ("sky", "back", "ground"):
        parts += _place_things(
            [thing for thing in drawn if known.things[thing[0]].place == place], place, known
        )
    return Drawing(_frame(parts, lines), told, left)


def _find_singular(word: str, known: _Vocabulary) -> str:
    """Return the word in the form that the vocabulary has, if it has one."""
    every = known.things.keys() | known.grounds.keys() | known.skies.keys()
    forms = (word, word.removesuffix("s"), word.removesuffix("es"))
    return next((form for form in forms if form in every), word)


def _find_things(words: Sequence[str], known: _Vocabulary) -> Iterator[tuple[str, int, str]]:
    """Yield each thing with its number and its colour; of `Bactrian camel`, the closer name."""
    begin = 0
    for at, word in enumerate(words):
        thing = known.things.get(word)
        if thing is None or (word == "camel" and at and words[at - 1] in known.things):
            continue
        before = words[max(begin, at - _REACH) : at]
        numbers = [
            known.numbers.get(near) or int(near)
            for near in before
            if near in known.numbers or _NUMBER.fullmatch(near)
        ]
        colours = [near for near in before if near in known.colours]
        yield (
            word,
            min(_MOST, max(1, numbers[-1] if numbers else 1)),
            colours[-1] if colours else thing.colour,
        )
        begin = at + 1


def _place_things(drawn: Sequence[tuple[str, int, str]], place: str, known: _Vocabulary) -> Iterator[str]:
    """Yield the things of one place, side by side."""
    row = [(word, colour) for word, count, colour in drawn for _ in range(count)]
    room = _WIDTH / max(1, len(row))
    size = min(room, {"sky": 80, "back": 240, "ground": 200}[place])
    foot = {"sky": 110, "back": _HORIZON + 4, "ground": _HEIGHT - 40}[place]
    for number, (word, colour) in enumerate(row):
        x, y = (number + 0.5) * room - size / 2, foot - size
        move = f"translate({x:.1f} {y:.1f}) scale({size / 100:.3f})"
        stroke = 'fill="currentColor" stroke="#333" stroke-width="1"'
        yield f'<g transform="{move}" color="{colour}" {stroke}>{known.things[word].svg}</g>'


def _frame(parts: Sequence[str], lines: Sequence[str]) -> str:
    """Return the whole picture, with its words below it."""
    shown = [line if len(line) <= _LINE else f"{line[: _LINE - 1]}…" for line in lines]
    height = _HEIGHT + 22 * len(shown) + 12
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    texts = (
        f'<text x="12" y="{_HEIGHT + 22 * (number + 1)}" font-family="sans-serif" font-size="14">{escape(line)}</text>'
        for number, line in enumerate(shown)
    )
    back = f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    title = f"<title>{escape(lines[0])}</title><desc>{escape(' '.join(lines[1:]))}</desc>"
    return "\n".join([head, title, back, *parts, *texts, "</svg>\n"])


# The tool by which an embodied agent draws: by rules on this computer, or by a model of pictures at an endpoint.


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
