"""Asking a model for the items of an axis (the paper's meta data, its appendix on data generation)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from pydantic import BaseModel

from bactrian.errors import BadReply, ContextFull
from bactrian.files.template import compile_template
from bactrian.generate.lists.dedup import remove_duplicates
from bactrian.generate.lists.grammar import build_list_grammar, build_list_schema, build_varied_list_grammar
from bactrian.generate.lists.parse import read_item, read_list
from bactrian.models.model import Model, Request, ResponseFormat
from bactrian.models.traits import get_traits
from bactrian.recipes.schema import Axis
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.text import Text
from bactrian.records.usage import Usage

_FRUITLESS = 3
"""Replies in a row that bring nothing new, after which a list stays short."""
_SHOWN = 40
"""Items that the question names as taken, the newest ones: all of them would crowd out the question."""
_SMALL_ITEMS = 10
"""Items for which the built-in model is asked at once; longer lists it fills with repetitions."""
_SMALL_TEMPERATURE = 0.8
"""The least with which the built-in model is asked: below it, it goes on with the words it has just said."""


class _Items(BaseModel):
    items: list[str]


@dataclass(frozen=True, slots=True)
class ListProgress:
    """How far a list has come."""

    items: tuple[str, ...]
    finished: bool
    """True when nothing more will be asked; the list may still be short."""
    usage: Usage
    """Of all its calls."""
    calls: int
    why: str = ""
    """What came instead of items, where the last reply brought none."""


async def list_items(
    axis: Axis,
    values: Mapping[str, str],
    model: Model,
    *,
    list_id: str,
    preamble: str = "",
    enforced: bool = False,
    seed: int | None = None,
    begun: ListProgress | None = None,
    enough: int | None = None,
) -> AsyncGenerator[ListProgress]:
    """Ask ``model`` until the axis has its ``count`` items, or until three replies in a row bring nothing new.

    With ``enough``, no further question is asked once there are so many items.

    Gives the list after every reply, so that it can be stored before the next request goes out. ``begun`` is what
    an earlier run had; without it the list begins with the items that the axis gives. The question is the axis's
    ``ask`` with ``values``; later ones name the items that exist. The built-in model is not told them, since it
    repeats what it reads: it is asked for ten at a time, each of which has to begin with other letters.

    Raises:
        ModelError: the model does not answer.
    """
    so_far = begun or ListProgress(axis.first, finished=False, usage=Usage(), calls=0)
    if begun is None and so_far.items:
        yield so_far
    fruitless = 0
    assert axis.ask is not None
    template = compile_template(axis.ask, may=frozenset({"count", *axis.per}))
    small = get_traits(model).small
    first = crc32(list_id.encode())  # so that not every list begins with the same letters
    while len(so_far.items) < (enough or axis.count) and fruitless < _FRUITLESS:
        missing = axis.count - len(so_far.items)
        wanted = 1 if axis.each else min(missing, _SMALL_ITEMS) if small else missing
        question = template.render({"count": wanted, **values})
        taken = () if small else so_far.items
        request = Request(
            messages=(Message("user", Text(_with_taken(question, taken, preamble))),),
            sampling=Sampling(
                temperature=max(axis.temperature or 0.0, _SMALL_TEMPERATURE) if small else axis.temperature,
                max_tokens=min(axis.max_tokens, 60 * wanted + 60) if small else axis.max_tokens,
                seed=None if seed is None else seed + so_far.calls,
            ),
            response_format=None
            if axis.each or not (enforced or small)
            else _form(wanted, first + so_far.calls if small else None),
            session=list_id,
            agent="lister",
            call_index=so_far.calls,
        )
        usage = so_far.usage
        new: list[str] = []
        why = ""
        try:
            reply = await model.reply(request)
        except ContextFull:
            if axis.max_tokens <= 1 or not so_far.items:
                raise
            fruitless = _FRUITLESS
            why = "Its own items fill the model's window."
        except BadReply as error:
            if error.endpoint_wide:
                raise
            fruitless += 1
            why = error.what
        else:
            usage += reply.usage
            found = [read_item(reply.text)] if axis.each else read_list(reply.text, single=wanted == 1)
            if reply.finish == "length" and not small:  # the built-in model seldom ends by itself
                found = found[:-1]
            new = remove_duplicates((item for item in found if item), so_far.items)[:missing]
            fruitless = 0 if new else fruitless + 1
            why = "" if new else "The replies brought nothing new."
        items = (*so_far.items, *new)
        finished = len(items) == axis.count or fruitless >= _FRUITLESS
        so_far = ListProgress(items, finished, usage, so_far.calls + 1, why)
        yield so_far


def _with_taken(question: str, items: Sequence[str], preamble: str) -> str:
    parts = [preamble] if preamble else []
    parts.append(question)
    if items:
        taken = "\n".join(f"- {item[:200]}" for item in items[-_SHOWN:])
        parts.append(f"These exist already. Find others, and leave these out:\n{taken}")
    return "\n\n".join(parts)


def _form(count: int, question: int | None) -> ResponseFormat:
    return ResponseFormat(
        name="items",
        schema=build_list_schema(),
        grammar=build_list_grammar(count) if question is None else build_varied_list_grammar(count, question),
        read=lambda text: "\n".join(
            f"{number}. {item}" for number, item in enumerate(_Items.model_validate_json(text).items, start=1)
        ),
    )
