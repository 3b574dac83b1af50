"""Asks a model for the items of an axis (paper, appendix on data generation)."""

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

_MAX_EMPTY_ROUNDS = 3
"""After this many replies in a row without a new item, the list stays short."""


@dataclass(frozen=True, slots=True)
class _Style:
    """How to ask a model for a list."""

    at_once: int = 1_000_000
    """Maximum number of items per question."""
    shown: int = 1_000_000
    """Maximum number of existing items that a question lists as taken."""
    least_temperature: float = 0.0
    tokens_each: int | None = None
    """Maximum number of tokens per item, with one item more for the text around them; None: as the axis says."""
    varied: bool = False
    """True if each item of a question must begin with a different letter."""
    ends_lists: bool = True
    """True if the model usually ends its lists itself; the last item of a truncated reply is then incomplete."""

    def make_sampling(self, axis: Axis, size: int, seed: int | None) -> Sampling:
        """Return the sampling parameters for a question that asks for ``size`` items."""
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
"""The built-in model repeats the items it reads, fills longer lists with repetitions, repeats itself below this
temperature, and rarely ends a list itself."""


class ModelSource:
    """Asks ``model`` for the lists of ``axes``, until a list is complete or three replies in a row contain no new item.

    The question is the axis's ``ask``, filled with the items it depends on; later questions list the existing items.
    A list begins with the items that the axis gives. ``preamble`` precedes each question. ``enforced`` constrains
    replies to the format of a list, if the endpoint supports that. ``parameters`` replace the axis's sampling.
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
        """Yield the list after every reply, until it has ``enough`` items.

        Raises:
            ModelError: the model does not answer.
        """
        axis = self._axes[request.axis]
        so_far = begun or ListProgress(axis.first, finished=False, usage=Usage(), calls=0)
        if begun is None and so_far.items:
            yield so_far
        if axis.each and not axis.shown:
            async for longer in self._ask_for_each(axis, request, so_far):
                yield longer
            return
        empty_rounds = 0
        while len(so_far.items) < request.enough and empty_rounds < _MAX_EMPTY_ROUNDS:
            answer = await self._ask(axis, request, so_far)
            empty_rounds = 0 if answer.new else _MAX_EMPTY_ROUNDS if answer.last else empty_rounds + 1
            items = (*so_far.items, *answer.new)
            so_far = ListProgress(
                items,
                finished=len(items) == axis.count or empty_rounds >= _MAX_EMPTY_ROUNDS,
                usage=so_far.usage + answer.usage,
                calls=so_far.calls + 1,
                why=answer.why,
            )
            yield so_far

    async def _ask_for_each(
        self, axis: Axis, request: ListRequest, so_far: ListProgress
    ) -> AsyncGenerator[ListProgress]:
        """Ask for each missing item separately and concurrently; no question lists other items (paper, appendix).

        If one question fails or the run stops, the answers in flight are still awaited and kept. A round in which
        fewer than a third of the questions yield a new item counts as empty.
        """
        empty_rounds = 0
        while len(so_far.items) < request.enough and empty_rounds < _MAX_EMPTY_ROUNDS:
            before = so_far
            missing = request.enough - len(before.items)
            empty = ListProgress(before.items, finished=False, usage=Usage(), calls=before.calls)
            numbers = {
                asyncio.create_task(
                    self._ask(axis, request, replace(empty, calls=before.calls + number))
                ): number
                for number in range(missing)
            }
            answers: dict[int, _Answer] = {}
            fault: BactrianError | None = None
            waiting = set(numbers)
            try:
                while waiting:
                    ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        try:
                            answers[numbers[task]] = task.result()
                        except BactrianError as error:
                            # Another error says more than the fact that the run stops.
                            fault = error if fault is None or isinstance(fault, Halted) else fault
                    if not answers:
                        continue
                    # In the order of the questions, so that the same seed gives the same list.
                    found = [item for number in sorted(answers) for item in answers[number].new]
                    items = (*before.items, *remove_duplicates(found, before.items))
                    fresh = len(items) - len(before.items)
                    is_empty = not waiting and fault is None and 3 * fresh < len(answers)
                    so_far = ListProgress(
                        items,
                        finished=len(items) == axis.count
                        or (is_empty and empty_rounds + 1 >= _MAX_EMPTY_ROUNDS),
                        usage=sum((answer.usage for answer in answers.values()), start=before.usage),
                        calls=before.calls + len(answers),
                        why=next((answer.why for answer in answers.values() if answer.why), ""),
                        in_flight=len(waiting),
                    )
                    yield so_far
                    empty_rounds = empty_rounds + 1 if is_empty else 0 if not waiting else empty_rounds
            finally:
                for task in waiting:
                    task.cancel()
            if fault is not None:
                raise fault

    async def _ask(self, axis: Axis, request: ListRequest, so_far: ListProgress) -> _Answer:
        """Ask once for the missing items."""
        missing = axis.count - len(so_far.items)
        size = 1 if axis.each else min(missing, self._style.at_once)
        try:
            reply = await self._model.reply(self._make_request(axis, request, so_far, size))
        except ContextFull:
            if axis.max_tokens <= 1 or not so_far.items:
                raise
            return _Answer(why="The list's own items fill the model's context window.", last=True)
        except BadReply as error:
            if error.endpoint_wide:
                raise
            return _Answer(why=error.what)
        found = [read_item(reply.text)] if axis.each else read_list(reply.text, single=size == 1)
        if reply.finish == "length" and self._style.ends_lists:
            found = found[:-1]
        new = remove_duplicates((clean_text(item) for item in found if item), so_far.items)[:missing]
        return _Answer(tuple(new), reply.usage, "" if new else "The replies contained no new items.")

    def _make_request(self, axis: Axis, request: ListRequest, so_far: ListProgress, size: int) -> Request:
        assert axis.ask is not None
        template = compile_template(axis.ask, may=frozenset({"count", *axis.per}))
        question = template.render({"count": size, **request.values})
        most = min(axis.shown, self._style.shown)
        shown = so_far.items[-most:] if most else ()
        seed = self._seeds.find_list(request.id, so_far.calls)
        return Request(
            messages=(Message("user", Text(_write_question(self._preamble, question, shown))),),
            sampling=apply_parameters(self._style.make_sampling(axis, size, seed), self._parameters),
            response_format=None if axis.each else self._choose_format(size, request.id, so_far.calls),
            session=request.id,
            agent="lister",
            call_index=so_far.calls,
        )

    def _choose_format(self, size: int, list_id: str, calls: int) -> ResponseFormat | None:
        if self._style.varied:
            first = crc32(list_id.encode())  # so that not every list begins with the same letters
            return _make_format(build_varied_list_grammar(size, first + calls))
        return _make_format(build_list_grammar(size)) if self._enforced else None


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one question."""

    new: tuple[str, ...] = ()
    usage: Usage = Usage()
    why: str = ""
    last: bool = False
    """True if no further question can be asked."""


def _write_question(preamble: str, question: str, taken: Sequence[str]) -> str:
    parts = [preamble] if preamble else []
    parts.append(question)
    if taken:
        listed = "\n".join(f"- {item[:200]}" for item in taken)
        parts.append(render_prompt("list_taken", items=listed))
    return "\n\n".join(parts)


class _Items(BaseModel):
    items: list[str]


def _make_format(grammar: str) -> ResponseFormat:
    return ResponseFormat(name="items", schema=build_list_schema(), grammar=grammar, read=_read_items)


def _read_items(text: str) -> str:
    items = _Items.model_validate_json(text).items
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1))
