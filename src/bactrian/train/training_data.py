"""The data of a training, from runs and JSON lines, divided without a leak into training and held-out data.

A held-out conversation shares nothing with the training data of any stage: neither its id, nor its group (a pair of
roles), nor 13 consecutive words of a message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bactrian.analyze.behaviours import find_behaviours
from bactrian.errors import InputError, explain_os_errors
from bactrian.export.format import ExportContext, SystemPrompts
from bactrian.export.formats import CHAT_MESSAGES, build_row
from bactrian.export.session_filters import GRAM, Filters, SessionFilter, list_grams, locate_group, name_group
from bactrian.files.atomic import is_sqlite_file
from bactrian.files.json_text import read_lines
from bactrian.files.toml import suggest_name
from bactrian.records.run import BEHAVIOURS, FindingKey
from bactrian.records.session import ENDING_CODES, Session, find_kind
from bactrian.records.text import clean_text
from bactrian.store import open_store
from bactrian.train.training_folder import StageFolder
from bactrian.train.training_recipe import DataSource, Stage, TrainRecipe, modify_data_paths

ChatMessage = dict[str, str]  # A message: `role` (system, user or assistant) and `content`
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages whose assistant is learned."""

    id: str
    group: str  # What must not be divided between training and held-out data, such as a pair of roles
    messages: Sequence[ChatMessage]

    def to_json(self) -> str:
        """Return it as one line."""
        values = {"id": self.id, "group": self.group, "messages": list(self.messages)}
        return json.dumps(values, ensure_ascii=False) + "\n"

    def list_texts(self) -> list[str]:
        """Return the messages without the system prompt, which conversations share."""
        return [message["content"] for message in self.messages if message["role"] != "system"]


def read_prepared(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file that this package wrote."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            values = json.loads(line)
            yield Conversation(values["id"], values["group"], values["messages"])


def read_json_lines(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of JSON lines with ``messages``, as ``export --format messages`` writes them.

    Consecutive rows need no id: a hash of the messages serves. The roles of an exported row are its group.

    Raises:
        InputError: the file cannot be read, or a line is not a conversation.
    """
    with explain_os_errors("The data cannot be read", path, "Check the path."):
        try:
            if path.exists() and not path.is_file():  # a device or a pipe may never end
                raise InputError(
                    "The data is not a file.", where=str(path), next="Give a run, or a file of JSON lines."
                )
            with path.open(encoding="utf-8-sig") as file:
                for number, line in enumerate(file, start=1):
                    # An exported `.json` is an array with a row in each line.
                    text = line.strip().removesuffix(",")
                    if text not in ("", "[", "]"):
                        yield _read_line(text, f"{path}, line {number}")
        except UnicodeDecodeError as error:
            raise InputError(
                "The data is neither a run nor JSON lines in UTF-8.",
                where=str(path),
                next="Give a run, or what `bactrian export --format messages` writes.",
            ) from error


def _read_line(line: str, where: str) -> Conversation:
    try:
        row: Any = json.loads(line)
        messages = [_read_message(message) for message in row["messages"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            "This line is not a conversation: an object with `messages`, each with `role` and `content`.",
            where=where,
            next="`bactrian export --format messages` writes such lines.",
        ) from error
    if fault := find_fault(messages):
        raise InputError(
            f"This conversation cannot be learned: {fault}.",
            where=where,
            next="Messages alternate: an optional system message, then user and assistant.",
        )
    return Conversation(_name(row, messages), _find_group(row, messages), messages)


def _read_message(message: Any) -> ChatMessage:
    role, content = message["role"], message["content"]
    if role not in ROLES or not isinstance(content, str):
        raise ValueError
    return {"role": role, "content": clean_text(content)}


def find_fault(messages: Sequence[ChatMessage]) -> str | None:
    """Return why a model cannot learn from these messages; None if it can."""
    roles = [message["role"] for message in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if "assistant" not in spoken:
        return "it has no message of an assistant"
    wanted = ["user", "assistant"] * len(spoken)
    return None if spoken == wanted[: len(spoken)] else "its messages do not alternate"


def hash_messages(messages: Sequence[ChatMessage]) -> str:
    """Return a short hash of the messages, ignoring white space at the ends."""
    text = json.dumps(
        [[message["role"], message["content"].strip()] for message in messages], ensure_ascii=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _name(row: dict[str, Any], messages: Sequence[ChatMessage]) -> str:
    if isinstance(row.get("id"), str):
        return clean_text(row["id"])
    if isinstance(row.get("session"), str):
        return f"{row.get('run', '')}:{row['session']}"
    return hash_messages(messages)


def _find_group(row: dict[str, Any], messages: Sequence[ChatMessage]) -> str:
    if isinstance(row.get("group"), str):
        return clean_text(row["group"]).casefold()
    roles = row.get("assistant_role"), row.get("user_role")
    if all(isinstance(role, str) and role for role in roles):
        return "\0".join(map(str, roles)).casefold()
    return hash_messages(messages)


@dataclass(slots=True)
class ReadCounts:
    """Counts the used and the omitted conversations of a source."""

    used: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])  # Number by reason


async def read_source(source: DataSource, counts: ReadCounts) -> AsyncIterator[Conversation]:
    """Yield the conversations of a run or a file that fit the filters.

    Raises:
        InputError: the source cannot be read, or a filter does not apply to it.
        StoreError: the run is damaged.
    """
    path = Path(source.path)
    if _is_database(path):
        async for conversation in _read_run(path, source, counts):
            if _is_in_share(conversation.id, source.share, counts):
                yield conversation
        return
    if source.only or source.drop or source.min_rounds or source.sessions:
        raise InputError(
            "JSON lines know no endings, behaviours and sessions to filter by.",
            where=str(path),
            next="Filter while exporting: `bactrian export RUN --format messages --only ending=CODE`.",
        )
    if source.side != "assistant":
        raise InputError(
            "Of JSON lines, the messages of the assistant are learned; they have no other side.",
            where=str(path),
            next=f"Give the run itself, or export it by `bactrian export RUN --format messages --side {source.side}`.",
        )
    for conversation in read_json_lines(path):
        if _is_in_share(conversation.id, source.share, counts):
            yield conversation


def _is_database(path: Path) -> bool:
    """Return True if ``path`` is a database."""
    with suppress(OSError):
        return is_sqlite_file(path)
    return False


async def _read_run(path: Path, source: DataSource, counts: ReadCounts) -> AsyncIterator[Conversation]:
    async with open_store(path, read_only=True) as opened, opened.snapshot() as run:
        fits, asked = SessionFilter(make_filters(source, await run.answers())), frozenset(source.sessions)
        context = ExportContext(path.stem, SystemPrompts(await run.recipe()), source.side)
        async for session in run.sessions():
            if asked and session.id not in asked:
                counts.left_out["not asked for"] += 1
            elif (kind := find_kind(session)) not in CHAT_MESSAGES.kinds:
                counts.left_out[kind] += 1
            elif reason := fits.find_reason(session):
                counts.left_out[reason] += 1
            elif row := build_row(session, context):
                messages = [
                    {"role": message["role"], "content": message["content"]}
                    for message in cast("list[ChatMessage]", row["messages"])
                ]
                if fault := find_fault(messages):
                    counts.left_out[fault] += 1
                else:
                    yield Conversation(f"{path.stem}:{session.id}", name_group(session), messages)
            else:
                counts.left_out[f"no turn of the {source.side}"] += 1


def make_filters(source: DataSource, answers: Mapping[FindingKey, bool]) -> Filters:
    """Return the filters of a run, in which findings count by the ``answers`` of readers.

    Raises:
        InputError: a code is unknown.
    """
    known = (*ENDING_CODES, *BEHAVIOURS)
    for code in (*source.only, *source.drop):
        allowed = ENDING_CODES if code in source.only else known
        if code not in allowed:
            raise InputError(
                f"There is no {'ending' if code in source.only else 'ending or behaviour'} {code!r}."
                f"{suggest_name(code, allowed)}",
                where=source.path,
                next=f"There are {', '.join(allowed)}.",
            )
    return Filters(
        endings=frozenset(source.only),
        reject={code: _make_test(code, answers) for code in source.drop},
        min_rounds=source.min_rounds,
    )


def _make_test(code: str, answers: Mapping[FindingKey, bool]) -> Callable[[Session], bool]:
    if code in ENDING_CODES:
        return lambda session: session.ending is not None and session.ending.code == code
    return lambda session: bool(find_behaviours(session, [code], custom=(), answers=answers))


def _is_in_share(name: str, share: float, counts: ReadCounts) -> bool:
    """Choose by a hash of the id, so that the same conversations are chosen on every machine."""
    if locate_group(f"share\0{name}") >= share:
        counts.left_out["not in the share"] += 1
        return False
    counts.used += 1
    return True


# Divides conversations, without a leak.


MOST_HELD_OUT = 500  # Conversations; more would not make the loss on them more certain, and cost time
_NO_TEXTS = frozenset(("id", "question_id", "role", "category"))  # Keys whose values are not texts
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Division:
    """The conversations of a stage."""

    train: Sequence[Conversation]
    held_out: Sequence[Conversation]
    leaks: int  # Conversations of held-out groups that quote training data, and are in neither part


def divide(stages: Sequence[Sequence[Conversation]], share: float) -> list[Division]:
    """Divide the conversations of all stages; a group is held out in all stages or in none.

    A held-out conversation that quotes training data is left out of both parts.
    """
    share = min(share, MOST_HELD_OUT / max(1, sum(map(len, stages))))
    parts: list[tuple[list[Conversation], list[Conversation]]] = []
    owners: defaultdict[str, list[int]] = defaultdict(list)
    for stage in stages:
        train = [conversation for conversation in stage if locate_group(conversation.group) >= share]
        held = [conversation for conversation in stage if locate_group(conversation.group) < share]
        parts.append((train, held))
        for conversation in held:
            for mark in _list_marks(conversation):
                owners[mark].append(id(conversation))
    leaking: set[int] = set()
    for conversation in (of for train, _ in parts for of in train if owners):
        for mark in _list_marks(conversation):
            leaking.update(owners.get(mark, ()))
    return [
        Division(
            train,
            [conversation for conversation in held if id(conversation) not in leaking],
            sum(id(conversation) in leaking for conversation in held),
        )
        for train, held in parts
    ]


def _list_marks(conversation: Conversation) -> Iterable[str]:
    """Return what must not occur in both parts."""
    spoken = [message for message in conversation.messages if message["role"] != "system"]
    yield f"id\0{conversation.id}"
    yield f"hash\0{hash_messages(spoken)}"
    for text in conversation.list_texts():
        yield from list_grams(text)


@dataclass(frozen=True, slots=True)
class ForbiddenTexts:
    """Texts that a model must not be trained on, such as the questions of an evaluation."""

    whole: frozenset[str]  # Texts as words in lower case, for those too short to have 13 words
    grams: frozenset[str]

    def occurs_in(self, messages: Sequence[ChatMessage]) -> bool:
        """Return True if a message is one of the texts, or shares 13 consecutive words with one."""
        return any(
            _to_words(message["content"]) in self.whole
            or any(gram in self.grams for gram in list_grams(message["content"]))
            for message in messages
        )


def make_forbidden(texts: Iterable[str]) -> ForbiddenTexts:
    """Return these texts as words."""
    whole: set[str] = set()
    grams: set[str] = set()
    for text in texts:
        words = _to_words(text)
        whole.add(words)
        if words.count(" ") + 1 >= GRAM:
            grams.update(list_grams(text))
    return ForbiddenTexts(frozenset(whole - {""}), frozenset(grams))


def read_forbidden(paths: Iterable[Path]) -> ForbiddenTexts:
    """Read files of texts: JSON lines, of which every string counts, or one text a line.

    Raises:
        InputError: a file cannot be read.
    """
    texts: list[str] = []
    for path in paths:
        for _, line in read_lines(path):
            texts += _list_strings(line)
    return make_forbidden(texts)


def _list_strings(line: str) -> list[str]:
    """Return the texts of a line: all strings of a JSON value that are texts, or the line itself."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return [line]
    texts: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            stack += [inner for key, inner in cast("dict[str, Any]", item).items() if key not in _NO_TEXTS]
        elif isinstance(item, list):
            stack += cast("list[Any]", item)
    return texts


def _to_words(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


_FILES = ("train.jsonl", "held-out.jsonl")


async def prepare_data(recipe: TrainRecipe, folders: Sequence[StageFolder]) -> list[dict[str, Any]]:
    """Write ``train.jsonl`` and ``held-out.jsonl`` of each stage, and return what the plan says of them.

    Raises:
        InputError: a stage has no data, or its data cannot be read.
    """
    forbidden = read_forbidden(map(Path, recipe.held_out_files))
    read = [await _read_stage(stage, recipe, forbidden) for stage in recipe.stages]
    divisions = divide([conversations for conversations, _ in read], recipe.training.held_out)
    described: list[dict[str, Any]] = []
    for stage, folder, division, (_, sources) in zip(recipe.stages, folders, divisions, read, strict=True):
        if not division.train:
            raise InputError(
                f"The stage {stage.name} has no conversation to train on: all are held out.",
                where=recipe.name,
                next="Lower held_out, or add data.",
            )
        folder.data.mkdir(parents=True, exist_ok=True)
        described.append(
            {
                "stage": stage.name,
                "sources": sources,
                "train": _write_lines(folder.data / _FILES[0], division.train),
                "held_out": _write_lines(folder.data / _FILES[1], division.held_out),
                "leaks": division.leaks,
            }
        )
    return described


async def _read_stage(
    stage: Stage, recipe: TrainRecipe, forbidden: ForbiddenTexts
) -> tuple[list[Conversation], list[dict[str, Any]]]:
    """Return a stage's conversations, each once, and a description of its sources."""
    if not stage.data:
        raise InputError(
            f"The stage {stage.name} has no data.",
            where=recipe.name,
            next=f'Name a run or JSON lines: runs={stage.name}=PATH, or data = ["PATH"] in the recipe.',
        )
    conversations: dict[str, Conversation] = {}
    sources: list[dict[str, Any]] = []
    for source in stage.data:
        source = source if stage.side is None else source.model_copy(update={"side": stage.side})  # noqa: PLW2901
        counts = ReadCounts()
        async for conversation in read_source(source, counts):
            if forbidden.occurs_in(conversation.messages):
                counts.left_out["says a held-out text"] += 1
            elif conversation.id in conversations:
                counts.left_out["the same id"] += 1
            else:
                conversations[conversation.id] = conversation
        about = source.model_dump(mode="json", exclude_defaults=True)
        about |= {"side": source.side, "conversations": counts.used, "left_out": dict(counts.left_out)}
        sources.append(about)
    if not conversations:
        reasons = ", ".join(
            f"{count:,} {why}" for source in sources for why, count in source["left_out"].items()
        )
        raise InputError(
            f"The stage {stage.name} has no conversation{f': {reasons}' if reasons else ''}.",
            where=", ".join(source.path for source in stage.data),
            next="Relax the filters, or generate more.",
        )
    return list(conversations.values()), sources


def _write_lines(path: Path, conversations: Sequence[Conversation]) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for conversation in conversations:
            line = conversation.to_json().encode()
            digest.update(line)
            file.write(line)
    return {"conversations": len(conversations), "sha256": digest.hexdigest()}


def strip_paths(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe whose paths are names of files only."""
    base = {
        key: _take_name(value) if key in ("model", "template") and value is not None else value
        for key, value in content["base"].items()
    }
    return {**modify_data_paths(content, _take_name), "base": base}


def find_base_path(content: Mapping[str, Any]) -> tuple[object, object]:
    """Return where a recipe finds its base model, and the template."""
    return content["base"].get("model"), content["base"].get("template")


def find_data_paths(content: Mapping[str, Any]) -> list[str]:
    """Return where a recipe finds its data."""
    data = [source["path"] for stage in content["stages"] for source in stage["data"]]
    return [*data, *content.get("held_out_files", ())]


async def check_moved_data(recipe: TrainRecipe, folders: Sequence[StageFolder]) -> None:
    """Check that the data of ``recipe``, at its new path, has all conversations that ``folders`` were prepared with.

    It may have more: a run that has grown since changes nothing.

    Raises:
        InputError: it is other data, or cannot be read.
    """
    forbidden = read_forbidden(map(Path, recipe.held_out_files))
    for stage, folder in zip(recipe.stages, folders, strict=True):
        conversations, sources = await _read_stage(stage, recipe, forbidden)
        now = {conversation.to_json() for conversation in conversations}
        for name in _FILES:
            with (folder.data / name).open(encoding="utf-8", newline="\n") as file:
                if all(line in now for line in file):
                    continue
            raise InputError(
                f"The data of the stage {stage.name} is not that which this training was begun with.",
                where=", ".join(source["path"] for source in sources),
                next="Use another out=FOLDER, or the data that it was begun with.",
            )


def _take_name(path: str) -> str:
    return Path(path).name
