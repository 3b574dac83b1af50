"""The formats of an export by name: the built-in ones, and those of other packages.

A package offers a format under the entry-point group ``bactrian.export_formats``; the entry point is a
:class:`~bactrian.export.format.Format`.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from bactrian.errors import InputError
from bactrian.export import format as forms
from bactrian.export.manifest import Tool, write_card
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.toml import suggest_name
from bactrian.models.wire import to_wire_tools
from bactrian.protocol.markers import DONE
from bactrian.records.session import Kind, Session, find_author, find_kind
from bactrian.records.text import to_file_name
from bactrian.records.turn import Instruction, Solution
from bactrian.tables import tables

# The layouts of CAMEL's own data sets: chats, instructions, problems with solutions, and translated chats.


# ``camel-chat``: the files that CAMEL's data explorer and its converter read, one for each session.
#
# A folder, a ``.zip`` or a ``.tar.gz``, with one ``ID.json`` for each session at its root and nothing else. The keys
# and their order are those of CAMEL's own files, with one difference: in those, ``num_messages`` precedes
# ``termination_reason`` in chats of 40 messages, and here it is always last. Two keys are optional: ``mark``, and
# ``planned_task`` as in CAMEL's own chats with a planner.


def _build_chat(session: Session, distinct: DistinctTasks, context: forms.ExportContext) -> dict[str, Any]:
    """Return a session in CAMEL's format.

    Messages are numbered without gaps, and a session that is done ends with the done token: CAMEL's converter reads
    ``message_1`` to ``message_N`` and drops the last message of such a chat, which would else be a solution.
    """
    task = distinct(session)
    # Its last message is missing, as after an import from ``messages``.
    done = session.ending is not None and session.ending.code == "task_done"
    last = session.turns[-1] if session.turns else None
    is_cut = done and (last is None or last.speaker != "user" or DONE not in last.text)
    context.notes["original_task with a number after it, to be one of its kind for its pair"] += (
        task != session.task.original
    )
    context.notes["done token added at the end, which the imported chat lacked"] += is_cut
    chat: dict[str, Any] = {
        **tables.write_roles(session),
        "id": session.id,
        **tables.name_tasks(session),
        "original_task": task,
        **({"mark": session.mark} if session.mark else {}),
        **({"planned_task": session.task.planned} if session.task.planned else {}),
    }
    messages = [
        tables.add_extra(_build_message(turn.speaker, turn.role, turn.text), session, turn.number)
        for turn in session.turns
    ]
    if is_cut:
        messages.append(_build_message("user", session.user.name, DONE))
    return {
        **tables.add_extra(chat, session),
        **{f"message_{number}": message for number, message in enumerate(messages, start=1)},
        "termination_reason": tables.write_termination(session.ending),
        "num_messages": len(messages),
    }


def _build_message(speaker: str, role: str, text: str) -> dict[str, Any]:
    return {"role_type": speaker.upper(), "role_name": role, "role": speaker, "content": str(text)}


class DistinctTasks:
    """Makes the tasks of a role pair unique: CAMEL's data explorer keeps one chat per pair and original task.

    The first session keeps its task; later ones with the same task get the suffix ``(2)``, ``(3)`` …
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        """For each task that is taken, the last number that was tried for it."""

    def __call__(self, session: Session) -> str:
        """Return the original task of ``session``, made unique."""
        task = session.task.original
        original = key = _hash_task(session, task)
        number = self._numbers.get(original, 1)
        while key in self._numbers:
            number += 1
            task = f"{session.task.original} ({number})"
            key = _hash_task(session, task)
        self._numbers[original] = number
        self._numbers.setdefault(key, 1)
        return task


def _hash_task(session: Session, task: str) -> bytes:
    return hashlib.blake2b("\0".join((*tables.name_roles(session), task)).encode(), digest_size=12).digest()


def _name_file(session: Session) -> str:
    """Return the name of a session's file: its id without characters that file names cannot contain."""
    return f"{to_file_name(session.id)}.json"


@contextmanager
def _open_chats(path: Path, context: forms.ExportContext) -> Generator[forms.Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one file per session."""
    distinct = DistinctTasks()
    with forms.open_archive(path) as put:

        def add(sample: forms.Sample) -> int:
            session = sample.session
            put(_name_file(session), json.dumps(_build_chat(session, distinct, context)).encode())
            return 1

        yield add


CHAT = forms.Format("camel-chat", _open_chats, ".zip", manifest_inside=False)


# ``camel-translated``: CAMEL's chats in other languages, an archive for each language.
#
# A file has the name of the translated chat. Only the messages are translated; characters are not escaped. A target
# that is itself an archive gets a folder for each language.


@contextmanager
def _open_translations(path: Path, context: forms.ExportContext) -> Generator[forms.Add]:
    """Open a folder for one ``RUN_chat_LANGUAGE.zip`` per language, or an archive, by the suffix of ``path``."""
    distinct: defaultdict[str, DistinctTasks] = defaultdict(DistinctTasks)
    packs: dict[str, forms.Put] = {}
    with ExitStack() as stack:
        whole = stack.enter_context(forms.open_archive(path)) if forms.is_archive(path) else None
        if whole is None:
            path.mkdir()

        def add(sample: forms.Sample) -> int:
            values = sample.session.values
            language = values.get("language", "unknown")
            chat = replace(sample.session, id=values.get("source", sample.session.id))
            text = json.dumps(
                _build_chat(chat, distinct[language], context), ensure_ascii=False, indent=4
            ).encode()
            if whole is not None:
                whole(f"{to_file_name(language)}/{_name_file(chat)}", text)
                return 1
            if language not in packs:
                name = f"{to_file_name(context.run)}_chat_{to_file_name(language)}.zip"
                packs[language] = stack.enter_context(forms.open_archive(path / name))
            packs[language](_name_file(chat), text)
            return 1

        yield add


TRANSLATED = forms.Format(
    "camel-translated", _open_translations, "", frozenset(("translation",)), manifest_inside=False
)


# ``camel-instructions``: CAMEL's instruction data, one JSON array with an entry for each round.
#
# CAMEL's procedure was never published; these rules were derived from its rows. The AI user's text before the
# instruction is ``role_1_response``; ``role_1_message_id`` is the number of the message with the instruction, as in
# ``message_1``; an instruction without input has the input ``None``.


def _list_instructions(sample: forms.Sample, _: forms.ExportContext) -> Iterator[dict[str, Any]]:
    session = sample.session
    for asked, answered in forms.list_rounds(session):
        if isinstance(asked.said, Instruction) and isinstance(answered.said, Solution):
            row: dict[str, Any] = {
                "id": session.id,
                **tables.write_roles(session),
                **tables.name_tasks(session),
                "role_1_response": asked.said.preface,
                "role_1_message_id": asked.number,
                "instruction": asked.said.instruction,
                "input": asked.said.input or "None",
                "output": answered.said.solution,
                "termination_reason": tables.write_termination(session.ending),
                **({"mark": session.mark} if session.mark else {}),
            }
            yield tables.add_extra(tables.add_extra(row, session, asked.number), session)


INSTRUCTIONS = forms.Format("camel-instructions", forms.open_rows(_list_instructions, array=True), ".json")


# ``camel-science``: CAMEL's problems and solutions, one JSON file for each.


@contextmanager
def _open_problems(path: Path, _: forms.ExportContext) -> Generator[forms.Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one file per problem."""
    with forms.open_archive(path) as put:

        def add(sample: forms.Sample) -> int:
            session = sample.session
            for asked, answered in forms.list_rounds(session)[:1]:
                row = _build_problem(session, asked.text, answered.text)
                put(_name_file(session), json.dumps(row).encode())
                return 1
            return 0

        yield add


def _build_problem(session: Session, problem: str, solution: str) -> dict[str, Any]:
    topic = session.values.get("topic", "")
    row: dict[str, Any] = {
        "role_1": f"{session.assistant.name}_RoleType.ASSISTANT",
        "topic": topic,
        "topic;": topic,  # the key in CAMEL's own files
        "sub_topic": session.values.get("sub_topic", ""),
        "message_1": problem,
        "message_2": solution,
        **({"mark": session.mark} if session.mark else {}),
    }
    return tables.add_extra(row, session)


SCIENCE = forms.Format("camel-science", _open_problems, ".zip", frozenset(("answer",)), manifest_inside=False)


# The formats of an export by name: the built-in ones, and those of other packages.


# The kinds of sessions between two sides.
_CHATS: frozenset[Kind] = frozenset(("role-play", "translation", "answer"))
_ALL_KINDS: frozenset[Kind] = frozenset(get_args(Kind))


# ``messages``: chats as JSON lines, in the format of TRL, Axolotl and most chat templates.


def build_row(
    session: Session, context: forms.ExportContext, *, tools: bool = False
) -> dict[str, Any] | None:
    """Return the chat of a session from ``context.side``, with its source; None if that side has no turn.

    With ``tools``, and unless the chat is to be plain, tool calls are included, and the column ``tools`` has the
    available tools as JSON text, because the schemas of different tools share no columns.
    """
    messages = forms.build_dialogue(session, context.side, context.prompts, tools=tools, plain=context.plain)
    if not messages:
        return None
    kit = session.provenance.tools.get(context.side) if tools and not context.plain else None
    rows = forms.to_plain_text(messages)
    if context.thoughts:
        forms.add_thoughts(rows, session, context.side)
    origin = "as said" if context.prompts.is_known(session, context.side) else "stand-in"
    return {
        "messages": forms.add_message_extra(rows, session, context.side),
        **({"tools": tables.to_compact_json(to_wire_tools(kit.tools))} if kit else {}),
        **tables.name_tasks(session),
        "side": context.side,
        "system_prompt": "left out" if context.plain else origin,
        **tables.trace_source(session, context.run),
    }


def list_chats(sample: forms.Sample, context: forms.ExportContext) -> Iterator[dict[str, Any]]:
    """Yield the chat of a session, unless the side to learn has no turn."""
    if row := build_row(sample.session, context, tools=True):
        yield tables.add_extra(row, sample.session)


CHAT_MESSAGES = forms.Format(
    "messages", forms.open_rows(list_chats), kinds=_CHATS, sides=True, tools=True, thoughts=True, plain=True
)


# ``sharegpt``: chats as JSON lines, with the speakers called ``system``, ``human`` and ``gpt``.


_SHAREGPT_NAMES = {"system": "system", "user": "human", "assistant": "gpt"}


def _list_sharegpt_chats(sample: forms.Sample, context: forms.ExportContext) -> Iterator[dict[str, Any]]:
    session = sample.session
    messages = forms.build_dialogue(session, context.side, context.prompts, plain=context.plain)
    if not messages:
        return
    rows = [{"from": _SHAREGPT_NAMES[message.role], "value": str(message.text)} for message in messages]
    row = {
        "conversations": forms.add_message_extra(rows, session, context.side),
        **tables.name_tasks(session),
        "side": context.side,
        **tables.trace_source(session, context.run),
    }
    yield tables.add_extra(row, session)


SHAREGPT = forms.Format(
    "sharegpt", forms.open_rows(_list_sharegpt_chats), kinds=_CHATS, sides=True, plain=True
)


# ``alpaca``: a JSON array of instructions, their inputs and the outputs, one for each round.


def _list_alpaca_rows(sample: forms.Sample, context: forms.ExportContext) -> Iterator[dict[str, Any]]:
    """Yield a row for each round in which both keep to the protocol; a question and its answer are one round."""
    session = sample.session
    for asked, answered in forms.list_rounds(session):
        if isinstance(asked.said, Instruction) and isinstance(answered.said, Solution):
            instruction, output = asked.said.instruction, answered.said.solution
            input_text = asked.said.input or ""
        elif find_kind(session) == "answer":
            instruction, input_text, output = asked.text, "", answered.text
        else:
            continue
        parts = {"instruction": str(instruction), "input": input_text, "output": str(output)}
        source = tables.name_tasks(session) | tables.trace_source(session, context.run)
        row = {**parts, "turn": asked.number, **source}
        yield tables.add_extra(tables.add_extra(row, session, asked.number), session)


ALPACA = forms.Format("alpaca", forms.open_rows(_list_alpaca_rows, array=True), ".json", _CHATS)


# ``preference``: pairs of chosen and rejected messages, as JSON lines for preference tuning.


def _list_pairs(sample: forms.Sample, context: forms.ExportContext) -> Iterator[dict[str, Any]]:
    """Yield each chosen candidate paired with each of the others, after the conversation from the speaker's side.

    Candidates equal to the chosen one are left out, and so are choices that do not follow a strictly alternating
    conversation.
    """
    session = sample.session
    for choice in sample.choices:
        before = forms.make_alternating(session)[: choice.number - 1]
        speaker = "assistant" if len(before) % 2 else "user"
        if len(before) != choice.number - 1 or choice.speaker != speaker:
            continue
        prompt = forms.to_plain_text(forms.view_from_side(session, choice.speaker, before, context.prompts))
        chosen = choice.texts[choice.index]
        for text in dict.fromkeys(choice.texts):
            if text.strip() != chosen.strip():
                yield {
                    "prompt": prompt,
                    "chosen": [{"role": "assistant", "content": chosen}],
                    "rejected": [{"role": "assistant", "content": text}],
                    "turn": choice.number,
                    "side": choice.speaker,
                    "chooser": choice.chooser,
                    "reason": choice.reason,
                    **tables.trace_source(session, context.run),
                }


PREFERENCE = forms.Format("preference", forms.open_rows(_list_pairs), needs=frozenset(("choices",)))


# ``hf``: a folder that ``datasets.load_dataset`` opens and that can be uploaded unchanged.


@contextmanager
def _open_hf(path: Path, context: forms.ExportContext) -> Generator[forms.Add]:
    """Open ``data/PART-00000.parquet`` and so on for the rows of ``messages``."""
    forms.require_polars("hf")
    import polars as pl

    text = pl.String()
    message = pl.Struct(
        dict.fromkeys(("role", "content", *([forms.THOUGHT] if context.thoughts else [])), text)
    )
    columns = (
        "original_task",
        "specified_task",
        "side",
        "system_prompt",
        *tables.COLUMNS,
        "extra",
        "message_extra",
    )
    pieces = forms.ParquetWriter(
        path.parent, path.name, {"messages": pl.List(message), **dict.fromkeys(columns, text)}
    )

    def add(sample: forms.Sample) -> int:
        session = sample.session
        row = build_row(session, context)
        if row is None:
            return 0
        row |= {"extra": tables.write_extra(session), "message_extra": tables.write_message_extras(session)}
        pieces.add(row, sum(len(turn.text) + len(turn.thought) for turn in session.turns) + 4000)
        return 1

    yield add
    pieces.flush()


HF = forms.Format(
    "hf",
    _open_hf,
    "",
    _CHATS,
    sides=True,
    thoughts=True,
    plain=True,
    layout="data/{part}",
    finish=lambda folder, manifest: (folder / "README.md").write_text(write_card(manifest), "utf-8"),
)


# ``parquet``: a folder with the tables of a run, for notebooks and databases.


@contextmanager
def _open_parquet(path: Path, context: forms.ExportContext) -> Generator[forms.Add]:
    """Open a folder for the tables of sessions, messages and, if detected, findings."""
    forms.require_polars("parquet")
    path.mkdir()
    thought: tables.Table = {"thought": "text"} if context.thoughts else {}
    schemas: dict[str, tables.Table] = {
        "sessions": tables.SESSIONS,
        "messages": {**tables.MESSAGES, **thought},
        "findings": tables.FINDINGS,
    }
    writers = {
        name: forms.ParquetWriter(path, name, tables.build_schema(schema)) for name, schema in schemas.items()
    }
    written = {"sessions", "messages"}

    def add(sample: forms.Sample) -> int:
        session = sample.session
        writers["sessions"].add(tables.make_session_row(session, context.run), len(session.task.text) + 1000)
        for turn, row in zip(session.turns, tables.make_message_rows(session, context.run), strict=True):
            more = {"thought": turn.thought} if context.thoughts else {}
            writers["messages"].add(row | more, 2 * len(turn.text) + len(turn.thought) + 500)
        if sample.findings is not None:
            written.add("findings")
        for finding in sample.findings or ():
            writers["findings"].add(
                tables.make_finding_row(session, finding, context.run), len(finding.quote) + 200
            )
        return 1

    yield add
    for name in sorted(written):
        writers[name].join(path / f"{name}.parquet")


PARQUET = forms.Format(
    "parquet", _open_parquet, "", _ALL_KINDS, frozenset(("findings",)), tools=True, thoughts=True
)


# ``csv``: a row for each message, for spreadsheets.


# How a formula begins. The last four are the full-width forms of the first four.
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


@contextmanager
def _open_csv(path: Path, context: forms.ExportContext) -> Generator[forms.Add]:
    """Open ``path`` for one table. A cell that a spreadsheet would evaluate gets an apostrophe before it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        heads = (
            "turn",
            "speaker",
            "role",
            "model",
            "text",
            "original_task",
            "specified_task",
            *tables.COLUMNS,
        )
        more = ("thought",) if context.thoughts else ()
        table.writerow((*heads, "tools", "extra", "message_extra", *more))

        def add(sample: forms.Sample) -> int:
            session = sample.session
            shared = (
                *tables.name_tasks(session).values(),
                *tables.trace_source(session, context.run).values(),
            )
            for turn in session.turns:
                cells = (
                    turn.speaker,
                    turn.role,
                    find_author(session, turn),
                    turn.text,
                    *shared,
                    tables.list_tool_uses(turn) or "",
                    tables.write_extra(session),
                    tables.write_extra(session, turn.number),
                    *((turn.thought,) if context.thoughts else ()),
                )
                escaped = (f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells)
                table.writerow((turn.number, *escaped))
            return len(session.turns)

        yield add


CSV = forms.Format("csv", _open_csv, ".csv", _ALL_KINDS, tools=True, thoughts=True)


GROUP = "bactrian.export_formats"
# The built-in formats.
_BUILT_IN = (
    *(CHAT_MESSAGES, SHAREGPT, ALPACA, PREFERENCE, HF, PARQUET, CSV),
    *(CHAT, INSTRUCTIONS, SCIENCE, TRANSLATED),
)
FORMATS: Mapping[str, forms.Format] = MappingProxyType({built_in.name: built_in for built_in in _BUILT_IN})
# The lists of a run and no sessions; :func:`~bactrian.export.exporter.export_lists` writes them.
LISTS = "camel-lists"
# What other programs call our formats.
_OTHER_NAMES = {
    "jsonl": "messages",
    "json": "messages",
    "chatml": "messages",
    "openai": "messages",
    "dpo": "preference",
    "huggingface": "hf",
    "datasets": "hf",
    "camel": "camel-chat",
}


def list_formats() -> tuple[str, ...]:
    """Return the names of the built-in formats, ``camel-lists`` among them."""
    return (*FORMATS, LISTS)


def find_format(name: str) -> forms.Format:
    """Return the format of this name; built-in formats take precedence.

    Raises:
        InputError: no format has this name, or a package's cannot be loaded.
    """
    if name in FORMATS:
        return FORMATS[name]
    others = list_plugins(GROUP)
    if name in others:
        loaded = load_plugin(GROUP, name)
        if isinstance(loaded, forms.Format):
            return loaded
        raise InputError(
            f"This is a {type(loaded).__name__}, not a bactrian.export.format.Format.",
            where=f"the entry point {name!r} of {GROUP}",
            next="Point the entry point to a Format.",
        )
    if name in get_args(Tool):
        raise InputError(
            f"{name} is a training tool and not a format.",
            option="format",
            next=f"Write a format that it reads, and its configuration: form=messages tool={name}",
        )
    known = (*list_formats(), *others)
    other = _OTHER_NAMES.get(name.lower())
    hint = f" Did you mean {other!r}?" if other else suggest_name(name, known)
    raise InputError(
        f"There is no format {name!r}.{hint}", option="format", next=f"Formats: {', '.join(known)}."
    )
