"""Asking a model for the items of an axis (the paper's meta data, its appendix on data generation)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from pydantic import BaseModel

from bactrian.errors import BactrianError, BadReply, ContextFull, Halted
from bactrian.files.template import compile_template
from bactrian.generate.lists.dedup import remove_duplicates
from bactrian.generate.lists.grammar import build_list_grammar, build_list_schema, build_varied_list_grammar
from bactrian.generate.lists.parse import read_item, read_list
from bactrian.generate.lists.source import ListProgress, ListRequest
from bactrian.models.model import Model, Request, ResponseFormat
from bactrian.models.seeds import RunSeeds
from bactrian.models.traits import get_traits
from bactrian.prompts.engine import render_prompt
from bactrian.recipes.axis import Axis
from bactrian.recipes.parameters import SamplingSpec, apply_parameters
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.text import Text, clean_text
from bactrian.records.usage import Usage

_FRUITLESS = 3
"""Replies in a row that bring nothing new, after which a list stays short."""


@dataclass(frozen=True, slots=True)
class _Style:
    """How a model has to be asked."""

    at_once: int = 1_000_000
    """Items for which it is asked at once."""
    shown: int = 1_000_000
    """Items that the question may name as taken, where the axis wants it."""
    least_temperature: float = 0.0
    tokens_each: int | None = None
    """Longest answer for each item, and for what stands around them; None leaves it to the axis."""
    varied: bool = False
    """True if each item has to begin with other letters than the others of its question."""
    ends_lists: bool = True
    """True if a reply that was cut off is an exception, and its last item a part of one."""

    def make_sampling(self, axis: Axis, size: int, seed: int | None) -> Sampling:
        """How to choose the words of ``size`` items."""
        temperature = axis.temperature
        if self.least_temperature:
            temperature = max(temperature or 0.0, self.least_temperature)
        longest = axis.max_tokens
        if self.tokens_each is not None:
            longest = min(longest, self.tokens_each * (size + 1))
        return Sampling(temperature, max_tokens=longest, seed=seed)


_SMALL_MODEL = _Style(
    at_once=10, shown=0, least_temperature=0.8, tokens_each=60, varied=True, ends_lists=False
)
"""The built-in model repeats what it reads, fills a longer list with repetitions, below this temperature goes on with
the words it has just said, and seldom ends by itself."""


class ModelSource:
    """Asks ``model`` for the lists of ``axes``, until a list is whole or three replies in a row bring nothing new.

    The question is the axis's ``ask`` with the items it depends on; later questions name the items that exist. A
    list begins with the items that the axis gives. ``preamble`` is put before each question; ``enforced`` holds the
    model to the form of a list, where its endpoint can be told one. ``parameters`` replace the axis's sampling.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        model: Model,
        *,
        preamble: str = "",
        enforced: bool = False,
        seeds: RunSeeds | None = None,
        parameters: tuple[SamplingSpec, ...] = (),
    ) -> None:
        self._axes = {axis.name: axis for axis in axes}
        self._model = model
        self._preamble = preamble
        self._style = _SMALL_MODEL if get_traits(model).small else _Style()
        self._enforced = enforced
        self._seeds = seeds or RunSeeds(None)
        self._parameters = parameters

    async def list_items(
        self, request: ListRequest, begun: ListProgress | None = None
    ) -> AsyncGenerator[ListProgress]:
        """Yield the list after every reply; no further question is asked once there are ``enough`` items.

        Raises:
            ModelError: the model does not answer.
        """
        axis = self._axes[request.axis]
        so_far = begun or ListProgress(axis.first, finished=False, usage=Usage(), calls=0)
        if begun is None and so_far.items:
            yield so_far
        if axis.each and not axis.shown:
            async for longer in self._ask_apart(axis, request, so_far):
                yield longer
            return
        fruitless = 0
        while len(so_far.items) < request.enough and fruitless < _FRUITLESS:
            answer = await self._ask(axis, request, so_far)
            fruitless = 0 if answer.new else _FRUITLESS if answer.last else fruitless + 1
            items = (*so_far.items, *answer.new)
            so_far = ListProgress(
                items,
                finished=len(items) == axis.count or fruitless >= _FRUITLESS,
                usage=so_far.usage + answer.usage,
                calls=so_far.calls + 1,
                why=answer.why,
            )
            yield so_far

    async def _ask_apart(
        self, axis: Axis, request: ListRequest, so_far: ListProgress
    ) -> AsyncGenerator[ListProgress]:
        """Ask for each missing item by itself, all at once: no question knows of the others (paper, appendix).

        Answers that are on their way when one fails, or when the run stops, are waited for and kept. A round that
        brings new items for less than a third of its questions is fruitless.
        """
        fruitless = 0
        while len(so_far.items) < request.enough and fruitless < _FRUITLESS:
            before = so_far
            missing = request.enough - len(before.items)
            first = ListProgress(before.items, finished=False, usage=Usage(), calls=before.calls)
            asked = {
                asyncio.create_task(
                    self._ask(axis, request, replace(first, calls=before.calls + number))
                ): number
                for number in range(missing)
            }
            answers: dict[int, _Answer] = {}
            fault: BactrianError | None = None
            waiting = set(asked)
            try:
                while waiting:
                    ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        try:
                            answers[asked[task]] = task.result()
                        except BactrianError as error:
                            # That the run stops says less than what else went wrong.
                            fault = error if fault is None or isinstance(fault, Halted) else fault
                    if not answers:
                        continue
                    # In the order of the questions, so that the same seed gives the same list.
                    found = [item for number in sorted(answers) for item in answers[number].new]
                    items = (*before.items, *remove_duplicates(found, before.items))
                    fresh = len(items) - len(before.items)
                    tired = not waiting and fault is None and 3 * fresh < len(answers)
                    so_far = ListProgress(
                        items,
                        finished=len(items) == axis.count or (tired and fruitless + 1 >= _FRUITLESS),
                        usage=sum((answer.usage for answer in answers.values()), start=before.usage),
                        calls=before.calls + len(answers),
                        why=next((answer.why for answer in answers.values() if answer.why), ""),
                        in_flight=len(waiting),
                    )
                    yield so_far
                    fruitless = fruitless + 1 if tired else 0 if not waiting else fruitless
            finally:
                for task in waiting:
                    task.cancel()
            if fault is not None:
                raise fault

    async def _ask(self, axis: Axis, request: ListRequest, so_far: ListProgress) -> _Answer:
        """Ask once for the items that are missing."""
        missing = axis.count - len(so_far.items)
        size = 1 if axis.each else min(missing, self._style.at_once)
        try:
            reply = await self._model.reply(self._request(axis, request, so_far, size))
        except ContextFull:
            if axis.max_tokens <= 1 or not so_far.items:
                raise
            return _Answer(why="Its own items fill the model's window.", last=True)
        except BadReply as error:
            if error.endpoint_wide:
                raise
            return _Answer(why=error.what)
        found = [read_item(reply.text)] if axis.each else read_list(reply.text, single=size == 1)
        if reply.finish == "length" and self._style.ends_lists:
            found = found[:-1]
        new = remove_duplicates((clean_text(item) for item in found if item), so_far.items)[:missing]
        return _Answer(tuple(new), reply.usage, "" if new else "The replies brought nothing new.")

    def _request(self, axis: Axis, request: ListRequest, so_far: ListProgress, size: int) -> Request:
        assert axis.ask is not None
        template = compile_template(axis.ask, may=frozenset({"count", *axis.per}))
        question = template.render({"count": size, **request.values})
        most = min(axis.shown, self._style.shown)
        shown = so_far.items[-most:] if most else ()
        seed = self._seeds.find_list(request.id, so_far.calls)
        return Request(
            messages=(Message("user", Text(_join(self._preamble, question, shown))),),
            sampling=apply_parameters(self._style.make_sampling(axis, size, seed), self._parameters),
            response_format=None if axis.each else self._format(size, request.id, so_far.calls),
            session=request.id,
            agent="lister",
            call_index=so_far.calls,
        )

    def _format(self, size: int, list_id: str, calls: int) -> ResponseFormat | None:
        if self._style.varied:
            first = crc32(list_id.encode())  # so that not every list begins with the same letters
            return _list_format(build_varied_list_grammar(size, first + calls))
        return _list_format(build_list_grammar(size)) if self._enforced else None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one question brought."""

    new: tuple[str, ...] = ()
    usage: Usage = Usage()
    why: str = ""
    last: bool = False
    """True if no further question can be asked."""


def _join(preamble: str, question: str, taken: Sequence[str]) -> str:
    parts = [preamble] if preamble else []
    parts.append(question)
    if taken:
        listed = "\n".join(f"- {item[:200]}" for item in taken)
        parts.append(render_prompt("list_taken", items=listed))
    return "\n\n".join(parts)


class _Items(BaseModel):
    items: list[str]


def _list_format(grammar: str) -> ResponseFormat:
    return ResponseFormat(name="items", schema=build_list_schema(), grammar=grammar, read=_read_items)


def _read_items(text: str) -> str:
    items = _Items.model_validate_json(text).items
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1))
