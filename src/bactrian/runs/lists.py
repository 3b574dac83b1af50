"""The items of an axis: asked of a model (paper, appendix on data generation), read from files, without duplicates."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from zlib import crc32

from pydantic import BaseModel

from bactrian.errors import BactrianError, BadReply, ContextFull, Halted, InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.template import compile_template
from bactrian.models.model import Model, Request, ResponseFormat, RunSeeds, get_traits
from bactrian.options import SamplingSpec
from bactrian.protocol.pack import render_prompt
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import Axis
from bactrian.records.text import Text, clean_text, to_path_part
from bactrian.records.turn import Message, Sampling, Usage
from bactrian.runs.parse_lists import LIST_SCHEMA, build_list_grammar, read_item, read_list
from bactrian.runs.runner import ListProgress, ListSource
from bactrian.runs.scheduler import ListRequest

# Where the items of a list come from: a model, or a source of the user's own.


GROUP = "bactrian.list_sources"
"""Entry points of other packages: a source by its name."""


ListFunction = Callable[[ListRequest], Awaitable[Iterable[str]] | Iterable[str]]
"""The simplest source: a function from the request to the items, asynchronous or not."""


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A list source made of a function, which is asked once for each list."""

    name: str
    """For messages."""
    function: ListFunction

    async def list_items(
        self, request: ListRequest, _begun: ListProgress | None
    ) -> AsyncGenerator[ListProgress]:
        """Yield what the function returns, without blanks and duplicates, at most as many as the axis counts.

        Raises:
            InputError: the function failed, or returned something other than texts.
        """
        where = f"axes.{request.axis}.source"
        try:
            result = self.function(request)
            result = await result if isinstance(result, Awaitable) else result
            values: list[object] = list(result)
        except BactrianError:
            raise
        except Exception as error:
            raise InputError(
                f"The list source {self.name!r} failed for {request.id!r}: {type(error).__name__}: {error}.",
                where=where,
                next="Correct it and run the same command again.",
            ) from error
        strange = [item for item in values if not isinstance(item, str)]
        if strange or isinstance(result, str):
            what = f"{strange[0]!r}" if strange else "a text and not a list of texts"
            raise InputError(
                f"The list source {self.name!r} returned {what} for {request.id!r}"
                f"{', which is not a text' if strange else ''}.",
                where=where,
                next="Return a list of texts.",
            )
        texts = (item.strip() for item in cast("list[str]", values))
        items = tuple(dict.fromkeys(clean_text(item) for item in texts if item and "\0" not in item))
        why = "" if len(items) >= request.count else f"The list source {self.name!r} has no more."
        yield ListProgress(items[: request.count], finished=True, usage=Usage(), calls=0, why=why)


@dataclass(frozen=True, slots=True)
class SharedList:
    """The source of a list that several shards need: if each asked for it, each would get another one."""

    axis: str

    async def list_items(
        self, request: ListRequest, _begun: ListProgress | None
    ) -> AsyncGenerator[ListProgress]:
        """Refuse the request.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"Several shards need the list {self.axis!r}, so it is made before them.",
            where=request.id,
            next="Make it in a run of its own with lists_only=True, and name that run: origin=lists.db",
        )
        yield  # A generator, as every source.


def find_list_source(name: str, sources: Mapping[str, ListSource | ListFunction]) -> ListSource:
    """Return the source called ``name``: one of ``sources``, or one that an installed package registers.

    Raises:
        InputError: there is no such source, or it cannot be loaded.
    """
    source: object = sources.get(name)
    if source is None:
        if name not in list_plugins(GROUP):
            raise InputError(
                f"There is no list source {name!r}.",
                where="source",
                next=f"Install the package that registers it under {GROUP}, or pass it to generate().",
            )
        source = load_plugin(GROUP, name)
    if hasattr(source, "list_items"):
        return cast("ListSource", source)
    if not callable(source):
        raise InputError(
            f"The list source {name!r} is neither an object with list_items nor a function.",
            where="source",
            next="Pass a function of a ListRequest.",
        )
    return FunctionSource(name, cast("ListFunction", source))


# Removes duplicates and near-duplicates from lists.


_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")
_MINUS = re.compile(r"[-–](?=\s?(?:\d|[b-z]\b))")
_SIGNS = "#%&/*@"
"""Characters that Unicode counts as punctuation but that distinguish items: C and C#."""
_NEAR = 0.85
"""Two items that share at least this share of their words are duplicates."""
_ARTICLES = frozenset("a an the his her its our their your this these those".split())
_SMALL_WORDS = _ARTICLES | frozenset(
    "and are as at be by for from in into is it of on or that to was which will with you".split()
)
"""English words that may differ between two items that are duplicates."""
_DISTINGUISHING = re.compile(r"no|not|non|never|without|[b-z]|x{0,3}(?:i[xv]|v?i{0,3})")
"""Words that distinguish items: a negation, a single letter, a Roman numeral."""


def remove_duplicates(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Return the items that duplicate neither one of ``known`` nor an earlier item.

    Two items are duplicates if they differ only in case, Unicode form, punctuation, spaces and articles; or, with at
    least four words, if they share 85 % of their words and one contains the other's words in the same order. A
    replaced word makes a different item, and so do another order, other numbers and other signs: ``C`` and ``C#``,
    ``2 + 3`` and ``2 - 3``, ``Celsius to Fahrenheit`` and ``Fahrenheit to Celsius``.
    """
    exact: set[str] = set()
    by_word: dict[tuple[str, str], list[_Words]] = {}

    def is_new(item: str) -> bool:
        words = _words(item)
        if words.key in exact:
            return False
        # Two bags this similar share at least one of the rarer words, under which the other is found.
        if len(words.bag) >= 4 and any(
            _are_near(words, other) for word in words.bag for other in by_word.get((word, words.figures), ())
        ):
            return False
        exact.add(words.key)
        if len(words.bag) >= 4:
            # Filing an item under its rarest words keeps the number of comparisons small.
            rarest = sorted(words.bag, key=lambda word: len(by_word.get((word, words.figures), ())))
            # Under so many words that every near bag shares at least one of them.
            for word in rarest[: len(words.bag) - int(_NEAR * len(words.bag)) + 1]:
                by_word.setdefault((word, words.figures), []).append(words)
        return True

    for item in known:
        is_new(item)
    return [item for item in items if is_new(item)]


@dataclass(frozen=True, slots=True)
class _Words:
    key: str
    """Equal for two items that differ only in form."""
    figures: str
    """Numbers, signs and distinguishing words; equal in near-duplicates."""
    bag: frozenset[str]
    content: tuple[str, ...]
    """Content words, in order."""


def _words(item: str) -> _Words:
    text = unicodedata.normalize("NFKC", item).replace("**", "")
    written = [token for token in _TOKEN.findall(_MINUS.sub("\u2212", text)) if _counts(token)]
    tokens = [token.casefold() for token in written]
    return _Words(
        key=_key(written) or item,
        figures=" ".join(token for token in tokens if _is_distinguishing(token)),
        bag=frozenset(tokens),
        content=tuple(token for token in tokens if token not in _SMALL_WORDS),
    )


def _are_near(words: _Words, other: _Words) -> bool:
    if len(words.bag & other.bag) < _NEAR * len(words.bag | other.bag):
        return False
    less, more = sorted((words.content, other.content), key=len)
    following = iter(more)
    return all(word in following for word in less)


def _key(written: list[str]) -> str:
    """Return the tokens without articles and spaces between words, so that ``sales person`` equals ``salesperson``.

    A capital A is a name, as in ``Vitamin A``, unless it is the first word.
    """
    key = ""
    for position, token in enumerate(written):
        if len(written) > 1 and (token.casefold() if position == 0 else token) in _ARTICLES:
            continue
        key += token if token.isalpha() and key[-1:].isalpha() else f" {token}"
    return key.strip().casefold()


def _counts(token: str) -> bool:
    """Return True for a word, a number or a sign, and False for punctuation."""
    return token.isalnum() or token in _SIGNS or unicodedata.category(token[0])[0] != "P"


def _is_distinguishing(token: str) -> bool:
    """Return True for a token that distinguishes items: with a digit, a sign, or a word of ``_DISTINGUISHING``.

    Combining marks do not count; some scripts write vowels as marks.
    """
    if token.isalpha():
        return _DISTINGUISHING.fullmatch(token) is not None
    return unicodedata.category(token[0])[0] != "M"


# After this many replies in a row without a new item, the list stays short.
_MAX_EMPTY_ROUNDS = 3
# The built-in model fills longer lists with repetitions, and repeats itself below this temperature.
_SMALL_LIST = 10
_SMALL_TEMPERATURE = 0.8
_SMALL_TOKENS = 60  # an item


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
        self._small = get_traits(model).small
        self._preamble = preamble
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
        fewer than a third of the questions yield an item counts as empty. Equal items are kept, as the paper's are.
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
                    new = (item for number in sorted(answers) for item in answers[number].new)
                    items = (*before.items, *new)
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
        size = 1 if axis.each else min(missing, _SMALL_LIST) if self._small else missing
        try:
            reply = await self._model.reply(self._make_request(axis, request, so_far, size))
        except ContextFull:
            if axis.max_tokens <= 1 or not so_far.items:
                raise
            return _Answer(why="The list's own items fill the model's context window.", last=True)
        except BadReply as error:
            if error.endpoint_wide:
                raise
            return _Answer(why=error.report)
        items = [read_item(reply.text)] if axis.each else read_list(reply.text, single=size == 1)
        if reply.finish == "length" and not self._small:  # the built-in model rarely ends a list itself
            items = items[:-1]
        clean = [clean_text(item) for item in items if item]
        independent = axis.each and not axis.shown
        new = (clean if independent else remove_duplicates(clean, so_far.items))[:missing]
        return _Answer(tuple(new), reply.usage, "" if new else "The replies contained no new items.")

    def _make_request(self, axis: Axis, request: ListRequest, so_far: ListProgress, size: int) -> Request:
        assert axis.ask is not None
        template = compile_template(axis.ask, may=frozenset({"count", *axis.per}))
        parts = [self._preamble, template.render({"count": size, **request.values})]
        # The built-in model repeats the items that it reads.
        if axis.shown and so_far.items and not self._small:
            shown = "\n".join(f"- {item[:200]}" for item in so_far.items[-axis.shown :])
            parts.append(render_prompt("list_taken", items=shown))
        seed = self._seeds.find_list(request.id, so_far.calls)
        sampling = Sampling(axis.temperature, max_tokens=axis.max_tokens, seed=seed)
        grammar = build_list_grammar(size) if self._enforced else None
        if self._small:
            sampling = replace(
                sampling,
                temperature=max(axis.temperature or 0.0, _SMALL_TEMPERATURE),
                max_tokens=min(axis.max_tokens, _SMALL_TOKENS * (size + 1)),
            )
            first = crc32(request.id.encode())  # so that not every list begins with the same letters
            grammar = build_list_grammar(size, varied=first + so_far.calls)
        form = None
        if grammar and not axis.each:
            form = ResponseFormat(name="items", schema=LIST_SCHEMA, grammar=grammar, read=_read_items)
        return Request(
            messages=(Message("user", Text("\n\n".join(filter(None, parts)))),),
            sampling=apply_parameters(sampling, self._parameters),
            response_format=form,
            session=request.id,
            agent="lister",
            call_index=so_far.calls,
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one question."""

    new: tuple[str, ...] = ()
    usage: Usage = Usage()
    why: str = ""
    last: bool = False
    """True if no further question can be asked."""


class _Items(BaseModel):
    items: list[str]


def _read_items(text: str) -> str:
    items = _Items.model_validate_json(text).items
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1))


# Reads lists from files: one per combination of the axes that the list depends on, like CAMEL's task lists.


_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Reads the list of each combination from its own file."""

    path: str
    """Template over the axes in ``per``: ``tasks/{{ assistant_role }}_{{ user_role }}.txt``."""
    folder: str = ""
    """The folder to which the path is relative; empty for the current folder."""
    rest: ListSource | None = None
    """Provides the items that a file lacks; with None, the list stays short."""

    async def list_items(
        self, request: ListRequest, begun: ListProgress | None
    ) -> AsyncGenerator[ListProgress]:
        """Yield the items of the file for ``request``, and then those of :attr:`rest`.

        Raises:
            InputError: the file cannot be read.
        """
        if begun is None:
            path = self._find(request.values)
            text = await asyncio.to_thread(_read, path, request)
            items = tuple(remove_duplicates(map(clean_text, read_list(text)), ()))[: request.count]
            whole = len(items) >= request.count
            why = "" if whole else f"The list {str(path)!r} has no more."
            begun = ListProgress(items, finished=whole or self.rest is None, usage=Usage(), calls=0, why=why)
            yield begun
        if self.rest is not None and len(begun.items) < request.enough:
            async for longer in self.rest.list_items(request, begun):
                yield longer

    def _find(self, values: Mapping[str, str]) -> Path:
        parts = {axis: to_path_part(item) for axis, item in values.items()}
        return Path(self.folder) / compile_template(self.path, may=frozenset(values)).render(parts)


def _read(path: Path, request: ListRequest) -> str:
    problem = "it is not a file" if path.exists() and not path.is_file() else ""
    try:
        if not problem and path.stat().st_size <= _LARGEST:
            return path.read_text("utf-8-sig")
        problem = problem or f"it has more than {_LARGEST:,} bytes"
    except (OSError, ValueError) as error:
        problem = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    raise InputError(
        f"The list {str(path)!r} cannot be read: {problem}.",
        where=request.id,
        next="Give a UTF-8 text file for each combination of the axes in `per`.",
    )
