"""What an export format is, and what formats write with: chats from either side, rows, archives, and Parquet files."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bactrian.errors import MissingExtra
from bactrian.files.template import compile_template
from bactrian.models.wire import to_wire_calls
from bactrian.protocol.fences import read_body
from bactrian.protocol.markers import is_done
from bactrian.protocol.pack import Pack, find_pack, render_prompt, render_session
from bactrian.records.run import Finding
from bactrian.records.session import SYSTEM, Kind, Session, find_kind
from bactrian.records.text import Text
from bactrian.records.turn import Message, Preference, Speaker, Turn, to_messages
from bactrian.tables.tables import add_extra

if TYPE_CHECKING:
    import polars

# The system prompts of a stored session.


@dataclass(frozen=True, slots=True)
class InceptionPrompts:
    """The initial prompts of a session's two agents."""

    user: str  # System prompt of the AI user.
    assistant: str  # System prompt of the AI assistant.
    opening: str  # First message to the AI user.


class SystemPrompts:
    """Renders the prompts of stored sessions again, from their packs and recipe.

    A session stores the hash of its pack. If that pack is neither built in nor ``pack``, or if there was none, as in an
    imported conversation without a system prompt, a short substitute is used; see :meth:`is_known`.
    """

    def __init__(self, recipe: Mapping[str, Any] | None = None, pack: Pack | None = None) -> None:
        self._packs: dict[str, Pack | None] = {pack.hash: pack} if pack else {}
        made_from: Mapping[str, Any] = recipe["recipe"] if recipe else {}
        self._answer: Mapping[str, Any] | None = made_from.get("answer")

    def is_known(self, session: Session, side: Speaker = "assistant") -> bool:
        """Return True if :meth:`render` returns the original prompt of ``side``."""
        return self._pack(session) is not None or self._answered(session) or side in _find_imported(session)

    def render(self, session: Session) -> InceptionPrompts:
        """Return the initial prompts of both sides of ``session``."""
        if pack := self._pack(session):
            names = ("user_system", "assistant_system", "opening_request")
            return InceptionPrompts(*(render_session(name, session, pack) for name in names))
        if self._answered(session):
            assert self._answer is not None
            names = frozenset(session.values)
            system = compile_template(self._answer["system"], may=names).render(session.values).strip()
            return InceptionPrompts(user="", assistant=system, opening="")
        return replace(_stand_in(session), **_find_imported(session))

    def _pack(self, session: Session) -> Pack | None:
        known = session.provenance.prompts_hash
        if known not in self._packs:
            self._packs[known] = find_pack(known)
        return self._packs[known]

    def _answered(self, session: Session) -> bool:
        if self._answer is None or find_kind(session) != "answer":
            return False
        text = f"{self._answer['system']}\0{self._answer['question']}"
        return hashlib.sha256(text.encode()).hexdigest() == session.provenance.prompts_hash


def _find_imported(session: Session) -> dict[str, str]:
    """Return the system prompts of an imported conversation by side, as far as its file has them."""
    prompts = session.provenance.extra.get(SYSTEM, {})
    sides: tuple[Speaker, ...] = ("assistant", "user")
    return {side: prompts[side] for side in sides if isinstance(prompts.get(side), str)}


def _stand_in(session: Session) -> InceptionPrompts:
    assistant, user = session.assistant.name, session.user.name
    task = session.task.text
    if find_kind(session) == "answer":
        return InceptionPrompts(
            user="", assistant=render_prompt("unknown_answerer", role=assistant), opening=""
        )
    return InceptionPrompts(
        user=render_prompt("unknown_user", role=user, other=assistant, task=task),
        assistant=render_prompt("unknown_assistant", role=assistant, other=user, task=task),
        opening=render_prompt("unknown_opening"),
    )


# Key of a model's thoughts before a message, as in the chat templates of reasoning models.
THOUGHT = "reasoning_content"


def make_alternating(session: Session) -> tuple[Turn, ...]:
    """Return the turns in strict alternation, up to the first that is missing or out of order."""
    kept: list[Turn] = []
    for number, turn in enumerate(session.turns, start=1):
        if turn.number != number or turn.speaker != ("user" if number % 2 else "assistant"):
            break
        kept.append(turn)
    return tuple(kept)


def list_rounds(session: Session) -> list[tuple[Turn, Turn]]:
    """Return each turn of the AI user with the assistant's next one; what is missing between rounds does not matter."""
    return [
        (asked, answered)
        for asked, answered in pairwise(session.turns)
        if asked.speaker == "user" and answered.speaker == "assistant" and answered.number == asked.number + 1
    ]


def view_from_side(
    session: Session,
    side: Speaker,
    turns: Sequence[Turn],
    prompts: SystemPrompts,
    *,
    tools: bool = False,
    plain: bool = False,
) -> list[Message]:
    """Return these turns as messages for the agent of ``side``, whose messages have the role `assistant`.

    With ``tools``, its tool calls and their results are included. If ``plain``, there is no system prompt, and the
    texts are without the words of the protocol; the AI user's side begins with the task.
    """
    if plain:
        opening = [Message("user", Text(session.task.text))] if side == "user" else []
        bodies = ((turn, read_body(turn)) for turn in turns)
        return opening + [
            Message("assistant" if turn.speaker == side else "user", Text(body)) for turn, body in bodies
        ]
    rendered = prompts.render(session)
    messages = [Message("system", Text(rendered.assistant if side == "assistant" else rendered.user))]
    if side == "user":
        messages.append(Message("user", Text(rendered.opening)))
    for turn in turns:
        from_side = turn.speaker == side
        messages += to_messages(turn.uses) if from_side and tools else []
        messages.append(Message("assistant" if from_side else "user", turn.text))
    return messages


def build_dialogue(
    session: Session,
    side: Speaker,
    prompts: SystemPrompts,
    *,
    tools: bool = False,
    plain: bool = False,
) -> list[Message]:
    """Return the conversation from ``side``: its system prompt, then user and assistant messages in alternation.

    The last message is from ``side``: an unanswered turn is left out, so the AI user's done token ends the chat of its
    own side and is not part of the other's. Empty if ``side`` has no turn. If ``plain``, the chat ends before a turn
    that says nothing besides the words of the protocol.
    """
    turns = list(make_alternating(session))
    if plain:
        turns = list(takewhile(lambda turn: read_body(turn) and not is_done(turn.text), turns))
    while turns and turns[-1].speaker != side:
        turns.pop()
    return view_from_side(session, side, turns, prompts, tools=tools, plain=plain) if turns else []


def to_plain_text(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages in the form that most tools read."""
    return [
        {
            "role": message.role,
            "content": str(message.text),
            **({"tool_calls": to_wire_calls(message.calls)} if message.calls else {}),
            **({"tool_call_id": message.answers} if message.answers else {}),
        }
        for message in messages
    ]


def add_thoughts(rows: Sequence[dict[str, Any]], session: Session, side: Speaker) -> None:
    """Add the thoughts of ``side`` to its own messages. The other agent's thoughts are not part of its chat."""
    answers = (row for row in rows if row["role"] == "assistant" and "tool_calls" not in row)
    turns = (turn for turn in session.turns if turn.speaker == side)
    for row, turn in zip(answers, turns, strict=False):
        if turn.thought:
            row[THOUGHT] = turn.thought


def add_message_extra(rows: list[dict[str, Any]], session: Session, side: Speaker) -> list[dict[str, Any]]:
    """Return the messages of a chat from ``side`` with the keys that those of the imported file had besides."""
    if not session.provenance.extra.keys() - {"0"}:
        return rows
    turns = iter(make_alternating(session))
    opens = side == "user"
    made: list[dict[str, Any]] = []
    for row in rows:
        spoken = row.get("role", row.get("from")) not in ("system", "tool") and "tool_calls" not in row
        if spoken and opens:  # The request to begin is not a turn.
            spoken = opens = False
        turn = next(turns, None) if spoken else None
        made.append(row if turn is None else add_extra(row, session, turn.number))
    return made


# Data that a format may need besides a session.
Need = Literal["choices", "findings"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A session, with the data named in :attr:`Format.needs`."""

    session: Session
    """The conversation, with all its turns."""
    choices: Sequence[Preference] = ()
    """The choices between proposals, in the order of their turns."""
    findings: Sequence[Finding] | None = None
    """Findings in its turns; None if behaviours were not detected."""


@dataclass(frozen=True, slots=True)
class ExportContext:
    """Options of the export that a format may need."""

    run: str
    """Name of the run."""
    prompts: SystemPrompts
    """The system prompts of a session, rendered again from its pack and recipe."""
    side: Speaker = "assistant"
    """The agent whose messages a model is to learn."""
    thoughts: bool = False
    """True to include thoughts of reasoning models."""
    plain: bool = False
    """True to leave out the system prompt and the words of the protocol."""
    notes: Counter[str] = field(default_factory=Counter[str])
    """Notes for the reader on changes that the format made to rows, with their number."""


# Writes a sample and returns its number of rows: 0 if nothing in it fits the format.
Add = Callable[[Sample], int]
# Opens a file or a folder for samples. The output is complete when the context exits.
Opener = Callable[[Path, ExportContext], AbstractContextManager[Add]]


@dataclass(frozen=True, slots=True)
class Format:
    """An export format."""

    name: str
    open: Opener
    suffix: str = ".jsonl"
    """File suffix; empty for a folder."""
    kinds: frozenset[Kind] = frozenset(("role-play", "translation"))
    """Kinds of sessions that it supports."""
    needs: frozenset[Need] = frozenset()
    """Data that its samples need besides the session."""
    sides: bool = False
    """True if the output depends on the side to learn."""
    tools: bool = False
    """True if it includes tool calls."""
    thoughts: bool = False
    """True if it supports thoughts of reasoning models."""
    plain: bool = False
    """True if it can leave out the system prompt and the words of the protocol."""
    layout: str | None = None
    """Path of a ``{part}`` within the folder, for a format that is always a folder."""
    manifest_inside: bool = True
    """False if readers treat every file in the folder as data."""
    finish: Callable[[Path, Mapping[str, Any]], object] | None = None
    """Completes the folder after the manifest is known."""

    def locate(self, target: Path, part: str, *, divided: bool) -> Path:
        """Return the path to which ``part`` of the data is written."""
        if self.layout is not None:
            return target / self.layout.format(part=part)
        return target / f"{part}{self.suffix}" if divided else target


def open_rows(
    list_rows: Callable[[Sample, ExportContext], Iterator[Mapping[str, Any]]], *, array: bool = False
) -> Opener:
    """Return what opens a file for the rows of each sample: JSON lines, or one JSON ``array``, as any ``.json`` is."""

    @contextmanager
    def open_file(path: Path, context: ExportContext) -> Generator[Add]:
        is_array = array or path.suffix == ".json"
        with path.open("w", encoding="utf-8", newline="\n") as file:
            written = 0

            def add(sample: Sample) -> int:
                nonlocal written
                before = written
                for row in list_rows(sample, context):
                    if is_array:
                        file.write(",\n" if written else "[\n")
                    file.write(dump_line(row) + ("" if is_array else "\n"))
                    written += 1
                return written - before

            yield add
            if is_array:
                file.write("\n]\n" if written else "[]\n")

    return open_file


def dump_line(value: object) -> str:
    """Return ``value`` as one line of JSON, also for readers that treat U+2028 as a line end."""
    text = json.dumps(value, ensure_ascii=False)
    for character, escape in (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085")):
        if character in text:
            text = text.replace(character, escape)
    return text


# Writes a file by its name within the archive.
Put = Callable[[str, bytes], object]


def is_archive(path: Path) -> bool:
    """Return True if :func:`open_archive` writes one file, and not a folder."""
    return path.name.endswith((".zip", ".tar.gz", ".tgz"))


@contextmanager
def open_archive(path: Path) -> Generator[Put]:
    """Open a reproducible ``.zip`` or ``.tar.gz`` (``.tgz``), or, with any other name, a folder."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
            yield lambda name, content: pack.writestr(_make_zip_entry(name), content)
    elif is_archive(path):
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            yield lambda name, content: _write_tar_member(file, name, content)
            file.write(bytes(2 * tarfile.BLOCKSIZE))
    else:
        path.mkdir()
        yield lambda name, content: _write_file(path / name, content)


def _make_zip_entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o100644 << 16
    return info


def _write_tar_member(file: gzip.GzipFile, name: str, content: bytes) -> None:
    # tarfile's own writer keeps every member in memory until it is closed.
    info = tarfile.TarInfo(name)
    info.size = len(content)
    file.write(info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE))


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


# Characters of text that are buffered before a write.
_PIECE = 16 * 1024 * 1024
_ROW_GROUP = 10_000


def require_polars(form: str) -> None:
    """Raise MissingExtra unless Parquet files can be written."""
    # polars and not `datasets`, which needs pyarrow: only the tests read with it.
    if find_spec("polars") is None:
        raise MissingExtra("analysis", f"format={form}")


class ParquetWriter:
    """Writes rows as ``NAME-00000.parquet``, ``NAME-00001.parquet`` …, each of a bounded size.

    So the memory that it takes does not grow with the data.
    """

    def __init__(self, folder: Path, name: str, schema: Mapping[str, polars.DataType]) -> None:
        self.folder = folder
        self._name = name
        self._schema = schema
        self._rows: list[Mapping[str, object]] = []
        self._size = 0
        self._pieces: list[Path] = []

    def add(self, row: Mapping[str, object], size: int) -> None:
        """Add a row with about ``size`` characters."""
        self._rows.append(row)
        self._size += size
        if self._size >= _PIECE:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows, if any."""
        if not self._rows:
            return
        path = self.folder / f"{self._name}-{len(self._pieces):05}.parquet"
        with _convert_disk_errors():
            self._build_frame().write_parquet(path, row_group_size=_ROW_GROUP)
        self._pieces.append(path)
        self._rows, self._size = [], 0

    def join(self, path: Path) -> None:
        """Join all pieces into one file, and delete them."""
        import polars as pl

        self.flush()
        with _convert_disk_errors():
            if self._pieces:
                frame = pl.scan_parquet(self._pieces)
                frame.sink_parquet(path, row_group_size=_ROW_GROUP, maintain_order=True)
            else:
                self._build_frame().write_parquet(path)
        for piece in self._pieces:
            piece.unlink()

    def _build_frame(self) -> polars.DataFrame:
        import polars as pl

        return pl.DataFrame(self._rows, schema=dict(self._schema), orient="row")


@contextmanager
def _convert_disk_errors() -> Generator[None]:
    """Convert polars errors about a full disk to OSError."""
    from polars.exceptions import ComputeError

    try:
        yield
    except ComputeError as error:
        raise OSError(str(error)) from error
