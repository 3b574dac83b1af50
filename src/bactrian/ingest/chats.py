"""Conversations of other programs as sessions: CAMEL's chats, problems and instructions, ``messages``, ``sharegpt``.

Roles and tasks are read from files of our own exports. System prompts are not turns: those before the first turn are
kept beside them, and exports write them again. A chat from the AI user's side (``export --side user``) is converted
back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, cast

from bactrian.protocol.markers import is_done, read_instruction, read_solution
from bactrian.records.session import IMPORTED, SOURCE, SYSTEM, Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import HUMAN, Instruction, Solution, Speaker, Turn, Usage
from bactrian.tables.tables import CODE_AXES, COLUMNS, read_role, read_termination

# Most bytes of a conversation.
LONGEST = 16 * 1024 * 1024
_MOST_MESSAGES = 1_000_000
# Most messages of a chat in CAMEL's data.
_LIMIT = 40


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that was skipped."""

    # Name of the file, or of the file and its line.
    name: str
    problem: str


Found = Session | SkippedItem


class NotAChat(Exception):
    """The content is not a conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts about imported conversations that their files do not contain."""

    # The model of both sides; empty if unknown.
    model: str = ""
    language: str | None = None
    # Name, revision and licence of the data set, as far as they are known.
    source: Mapping[str, str] = field(default_factory=dict[str, str])

    def provenance(
        self, form: str, extra: Extra, *, agents: Sequence[str] = (), models: Mapping[str, str] | None = None
    ) -> Provenance:
        """Return the provenance of a session of this format. The files do not contain the prompts.

        ``agents`` name those that spoke, where it tells the kind of the session; ``models`` are those that the file
        names.
        """
        named = {"assistant": self.model, "user": self.model} if self.model else dict(models or {})
        return Provenance(
            prompts=f"{IMPORTED}{form}",
            prompts_hash="",
            protocol="free",
            models={agent: named.get(agent, self.model) for agent in agents} if agents else named,
            language=self.language,
            extra={**extra, SOURCE: dict(self.source)} if self.source else extra,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A JSON object of a file."""

    # Name of the file, with the line or the row.
    name: str
    content: Mapping[str, Any]
    # The names on the way to it: of the file given, and of folders and files in it.
    folders: tuple[str, ...] = ()

    @property
    def lower(self) -> dict[str, Any]:
        """The content with keys in lower case, as some of CAMEL's files have capitals."""
        return {key.lower(): value for key, value in self.content.items()}

    @property
    def stem(self) -> str:
        """Name of the file without folder and suffix."""
        return PurePosixPath(self.name.replace("\\", "/")).stem


# Keys that have no other place, as in :attr:`Provenance.extra`.
Extra = dict[str, dict[str, Any]]


def pick_extra(content: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the keys of ``content`` that are not ``known`` (in lower case), as clean JSON."""
    return {clean_text(key): _clean_json(value) for key, value in content.items() if key.lower() not in known}


def _clean_json(value: Any) -> Any:
    """Return JSON data that every store and every reader accepts: without NUL, lone surrogates, NaN and infinity."""
    match value:
        case str():
            return clean_text(value)
        case float():
            return value if isfinite(value) else None
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return {clean_text(key): _clean_json(item) for key, item in pairs}
        case list():
            return [_clean_json(item) for item in cast("list[Any]", value)]
        case _:
            return value


def read_text(content: Mapping[str, Any], key: str) -> str:
    """Return the text under ``key``; empty if it is missing or is not a text."""
    value = content.get(key)
    return clean_text(value) if isinstance(value, str) else ""


def read_task(content: Mapping[str, Any]) -> Task:
    """Return the task as CAMEL's files have it. Raises NotAChat."""
    original, specified = read_text(content, "original_task"), read_text(content, "specified_task")
    if not (original or specified):
        raise NotAChat("it has no task")
    return Task(original or specified, specified or None, read_text(content, "planned_task") or None)


def read_own_task(content: Mapping[str, Any], otherwise: str) -> Task:
    """Return the task as our own exports have it, in which an unspecified task is there twice."""
    original, specified = read_text(content, "original_task"), read_text(content, "specified_task")
    return Task(original or otherwise, specified if specified != original and specified else None)


def read_own_roles(content: Mapping[str, Any]) -> dict[Speaker, str]:
    """Return the role names by speaker as our own exports have them."""
    return {
        "assistant": read_name(content.get("assistant_role"), "Assistant"),
        "user": read_name(content.get("user_role"), "User"),
    }


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """One message of a file."""

    number: int
    speaker: Speaker
    role: str
    text: str
    # The parts of the text where the file has them apart; None parses the text.
    parsed: Instruction | Solution | None = None
    # Its other keys.
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


def collect_extra(shared: Mapping[str, Any], messages: Iterable[ParsedMessage]) -> Extra:
    """Return the other keys of a conversation: those ``shared`` by its messages, and those of each."""
    parts = {"0": shared, **{str(message.number): message.extra for message in messages}}
    return {number: dict(part) for number, part in parts.items() if part}


def build_turns(messages: Iterable[ParsedMessage], model: str) -> tuple[Turn, ...]:
    """Return messages as turns. Their usage is unknown: zero, marked as an estimate."""
    return tuple(_build_turn(message, model) for message in messages)


def _build_turn(message: ParsedMessage, model: str) -> Turn:
    if not 1 <= message.number <= _MOST_MESSAGES:
        raise NotAChat(f"it has a message {message.number}")
    text = clean_text(message.text)
    return Turn(
        number=message.number,
        speaker=message.speaker,
        role=clean_text(message.role),
        text=Text(text),
        said=message.parsed or (read_instruction if message.speaker == "user" else read_solution)(text),
        usage=Usage(estimated=True),
        seconds=0.0,
        first_token=None,
        model=model,
        finish="other",
        lossy=text != message.text,
    )


def build_ending(reason: str, spoken: Sequence[Turn]) -> Ending:
    """Return the ending given by the file or visible in the turns, else ``imported``."""
    last = spoken[-1].number if spoken else 0
    if known := read_termination(reason, last):
        return known
    if spoken and spoken[-1].speaker == "user" and is_done(spoken[-1].text):
        return Ending("task_done", last, "user", spoken[-1].text[:500])
    speaker = spoken[-1].speaker if spoken else "user"
    if len(spoken) == _LIMIT:
        return Ending("max_messages", last, speaker, f"{_LIMIT} messages")
    return Ending("imported", last, speaker, clean_text(reason)[:500])


def read_name(value: object, otherwise: str) -> str:
    """Return a name on one line."""
    name = " ".join(clean_text(value).split()) if isinstance(value, str) else ""
    return name[:300] or otherwise


def read_id(value: object, otherwise: str) -> str:
    """Return a short id, without characters that file names cannot contain."""
    text = clean_text(value) if isinstance(value, str) else ""
    return re.sub(r"[^\w.-]+", "-", text or otherwise).strip(".-")[:100] or "chat"


# CAMEL's chats: one JSON object for each session, as released by CAMEL or written by ``export --format camel-chat``.
#
# Irregularities of the released files are accepted: keys in upper case, no termination reason, no messages, missing
# messages, a wrong ``role``, a role type in lower case, no role name. The translated chats are the same in folders or
# archives that name the language.


FORM = "camel-chat"
TRANSLATED = "camel-translated"
_MESSAGE = re.compile(r"message_(\d{1,7})")
_KNOWN_OF_CHAT = frozenset(
    "role_1 role_2 id original_task specified_task planned_task mark termination_reason num_messages".split()
)
_KNOWN_OF_MESSAGE = frozenset(("role_type", "role_name", "role", "content"))
_NAMES = "Arabic German Spanish French Hindi Italian Japanese Korean Russian Chinese".split()
# The languages of CAMEL's translations, by code.
LANGUAGES: Mapping[str, str] = MappingProxyType(
    dict(zip("ar de es fr hi it ja ko ru zh".split(), _NAMES, strict=True))
)
_CODES = {name.lower(): code for code, name in LANGUAGES.items()} | {code: code for code in LANGUAGES}
# Name of an archive of translations, without its suffix.
_PACK = re.compile(r".*_chat_([a-z]{2,3})", re.IGNORECASE)

LICENSE = "CC-BY-NC-4.0"
# The names of CAMEL's published files, without suffix, as a browser may have numbered them.
_PUBLISHED = re.compile(
    r"(ai_society(_chat|_instructions|_translated|_chat_[a-z]{2,3})?|code(_chat|_instructions)|math(50k)?"
    r"|physics|chemistry|biology|misalignment)(_chat)?( ?\(\d+\))?",
    re.IGNORECASE,
)


def find_license(row: Row) -> str:
    """Return the licence of CAMEL's published data if the names on the way to ``row`` are those of its files."""
    stems = (name.partition(".")[0] for name in row.folders)
    return LICENSE if any(map(_PUBLISHED.fullmatch, stems)) else ""


def read_chat(row: Row, origin: Origin) -> Session:
    """Return the session of a chat.

    Raises:
        NotAChat: a required part is missing.
    """
    chat = row.lower
    roles = read_roles(chat)
    task = read_task(chat)
    messages = list(_list_chat_messages(chat, roles))
    turns = build_turns(messages, origin.model)
    values = _find_code_axes(messages, roles)
    others = {key: value for key, value in row.content.items() if not _MESSAGE.fullmatch(key.lower())}
    extra = pick_extra(others, _KNOWN_OF_CHAT)
    if values:
        roles = {message.speaker: message.role for message in messages[:2]}
    return Session(
        id=read_id(chat.get("id"), row.stem),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=task,
        provenance=origin.provenance(FORM, collect_extra(extra, messages)),
        turns=turns,
        ending=build_ending(read_text(chat, "termination_reason"), turns),
        values=values,
        mark=read_text(chat, "mark") or None,
    )


def read_translation(row: Row, origin: Origin) -> Session:
    """Return the session of a translated chat, whose language is that of its folder or archive.

    Its id is that of a translation made here: the language and the id of the chat.

    Raises:
        NotAChat: a required part is missing, or the language is not known.
    """
    name = (origin.language or "").strip()
    code = _CODES.get(name.lower(), name) or find_language(row)
    if code is None:
        raise NotAChat("its language is not known; name it with language=LANGUAGE")
    chat = read_chat(row, origin)
    return replace(
        chat,
        id=f"{code}_{chat.id}",
        values={**chat.values, "language": code, "source": chat.id},
        provenance=replace(
            chat.provenance,
            prompts=f"{IMPORTED}{TRANSLATED}",
            models={"translator": origin.model},
            language=LANGUAGES.get(code, code),
        ),
    )


def find_language(row: Row) -> str | None:
    """Return the code of the language that the names on the way to ``row`` give; None if they give none."""
    for name in reversed(row.folders):
        stem = name.partition(".")[0]
        if code := _CODES.get(stem.lower()):
            return code
        if match := _PACK.fullmatch(stem):
            return match[1].lower()
    return None


def read_roles(chat: Mapping[str, Any]) -> dict[Speaker, str]:
    """Return the role names by speaker, identified by suffix; without one, the first is the assistant's.

    Raises:
        NotAChat: a role is missing.
    """
    if not ("role_1" in chat and "role_2" in chat):
        raise NotAChat("it has no role_1 and role_2, so it is not a chat of CAMEL's")
    roles: dict[Speaker, str] = {}
    expected: tuple[tuple[str, Speaker], ...] = (("role_1", "assistant"), ("role_2", "user"))
    for key, usual in expected:
        value, speaker = read_role(chat[key])
        speaker = speaker or usual
        name = read_name(value, "")
        if not name or speaker in roles:
            raise NotAChat(f"its {key} names no role")
        roles[speaker] = name
    return roles


def _find_code_axes(messages: list[ParsedMessage], roles: Mapping[Speaker, str]) -> dict[str, str]:
    """Return language and field of a chat of the Code data set, whose messages name the roles in full."""
    names = {message.speaker: message.role for message in messages[:2]}
    language, field = roles["assistant"], roles["user"]
    if names.get("assistant") != f"{language} Programmer" or field not in names.get("user", ""):
        return {}
    return dict(zip(CODE_AXES, (language, field), strict=True))


def _list_chat_messages(chat: Mapping[str, Any], roles: Mapping[Speaker, str]) -> Iterator[ParsedMessage]:
    numbered = sorted((int(match[1]), key) for key in chat if (match := _MESSAGE.fullmatch(key)))
    if repeated := [number for (number, _), (later, _) in pairwise(numbered) if number == later]:
        raise NotAChat(f"it has two messages {repeated[0]}")
    for number, key in numbered:
        message: object = chat[key]
        if not isinstance(message, dict):
            raise NotAChat(
                f"its {key} is not an object, so this is not a chat; CAMEL's problems have such messages"
            )
        parts = cast("dict[str, Any]", message)
        text = parts.get("content")
        if not isinstance(text, str):
            raise NotAChat(f"its {key} has no text")
        speaker = _read_speaker(parts.get("role_type"), number)
        name = read_name(parts.get("role_name"), roles[speaker])
        yield ParsedMessage(number, speaker, name, text, extra=pick_extra(parts, _KNOWN_OF_MESSAGE))


def _read_speaker(role_type: object, number: int) -> Speaker:
    """Return the speaker of a message by its role type, or else by its number: odd messages are the user's."""
    kind = str(role_type).lower().rpartition(".")[2]
    if kind in ("user", "assistant"):
        return "user" if kind == "user" else "assistant"
    return "user" if number % 2 else "assistant"


# CAMEL's problems and solutions (math, physics, chemistry, biology): one JSON object for each.


SCIENCE = "camel-science"
_KNOWN_OF_PROBLEM = frozenset("role_1 topic topic; sub_topic message_1 message_2 id mark".split())


def read_problem(row: Row, origin: Origin) -> Session:
    """Return the session of a problem: its question and its answer.

    Raises:
        NotAChat: problem or solution is missing.
    """
    problem = row.lower
    question, answer = problem.get("message_1"), problem.get("message_2")
    if not (isinstance(question, str) and isinstance(answer, str)):
        raise NotAChat("it has no problem and solution as message_1 and message_2")
    if not question.strip():
        raise NotAChat("its problem is empty")
    role = read_name(read_role(problem.get("role_1"))[0], "Assistant")
    messages = (ParsedMessage(1, "user", "User", question), ParsedMessage(2, "assistant", role, answer))
    turns = build_turns(messages, origin.model)
    topics = {
        "topic": read_text(problem, "topic;") or read_text(problem, "topic"),
        "sub_topic": read_text(problem, "sub_topic"),
    }
    return Session(
        id=read_id(problem.get("id"), row.stem),
        assistant=Role(role),
        user=Role("User"),
        task=Task(str(turns[0].text)),
        provenance=origin.provenance(
            SCIENCE,
            collect_extra(pick_extra(row.content, _KNOWN_OF_PROBLEM), ()),
            agents=("assistant",),
        ),
        turns=turns,
        ending=Ending("answered", 2, "assistant", ""),
        values={name: text for name, text in topics.items() if text},
        mark=read_text(problem, "mark") or None,
    )


# Chats as JSON lines: ``messages`` (role and content) and ``sharegpt`` (from and value).


@dataclass(frozen=True, slots=True)
class ChatKeys:
    """The keys of a chat format."""

    form: str
    messages: str
    role: str
    content: str


MESSAGES = ChatKeys("messages", "messages", "role", "content")
SHAREGPT = ChatKeys("sharegpt", "conversations", "from", "value")
# The keys of a row of our own exports besides its messages.
ROW_KEYS = frozenset((*COLUMNS, "id", "original_task", "specified_task", "side", "system_prompt", "tools"))
# The name of an axis.
_AXIS = re.compile(r"[a-z_][a-z0-9_]{0,99}")
# Keys of a message that an import leaves out.
_MESSAGE_KEYS = frozenset(("tool_calls", "tool_call_id", "reasoning_content"))
_SPEAKERS: Mapping[str, Speaker | None] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "system": None,
    "tool": None,
}


def read_row(row: Mapping[str, Any], shape: ChatKeys, origin: Origin) -> Session:
    """Return the session of a row.

    Its id is the row's ``session`` or ``id``, or else a hash of its messages.

    Raises:
        NotAChat: a required part is missing.
    """
    roles, models, values = read_own_roles(row), _read_object(row, "models") or {}, _read_values(row)
    messages = list(_list_messages(row, shape, roles))
    if not messages:
        raise NotAChat(f"it has no {shape.messages}")
    turns = _restore_people(build_turns(messages, origin.model), row)
    first = next((message.text for message in messages if message.speaker == "user"), messages[0].text)
    digest = hashlib.sha256("\0".join(f"{turn.number} {turn.text}" for turn in turns).encode()).hexdigest()
    extra = collect_extra(pick_extra(row, {shape.messages, *_name_row_keys(values)}), messages)
    return Session(
        id=read_id(row.get("session") or row.get("id"), digest[:12]),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=read_own_task(row, clean_text(first)),
        provenance=origin.provenance(
            shape.form, {**extra, **_pick_system(row, shape)}, agents=_find_agents(models), models=models
        ),
        turns=turns,
        ending=build_ending(read_text(row, "ending"), turns),
        values=values or {},
        mark=read_text(row, "mark") or None,
    )


def _pick_system(row: Mapping[str, Any], shape: ChatKeys) -> Extra:
    """Return the system prompt before the first turn, by the side that it is for; empty if it is missing or ours."""
    if row.get("system_prompt") == "stand-in":
        return {}
    texts: list[str] = []
    for message in cast("list[dict[str, Any]]", row[shape.messages]):
        if message.get(shape.role) != "system":
            break
        texts.append(read_text(message, shape.content))
    side = "user" if row.get("side") == "user" else "assistant"
    return {SYSTEM: {side: "\n\n".join(texts)}} if any(texts) else {}


def _read_values(row: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the items by axis, as a row that was exported here names them; None if it does not."""
    values = _read_object(row, "values")
    return values if values is None or all(_AXIS.fullmatch(axis) for axis in values) else None


def _name_row_keys(values: Mapping[str, str] | None) -> frozenset[str]:
    """Return the keys of our own rows. A column ``values`` of another meaning is not among them, and is kept."""
    return ROW_KEYS if values is not None else ROW_KEYS - {"values"}


def _read_object(row: Mapping[str, Any], key: str) -> dict[str, str] | None:
    """Return the texts of a JSON object that is written as text; None if it is not one."""
    try:
        value: object = json.loads(read_text(row, key))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    pairs = cast("dict[str, object]", value).items()
    return {clean_text(name): clean_text(text) for name, text in pairs if isinstance(text, str)}


def _restore_people(turns: tuple[Turn, ...], row: Mapping[str, Any]) -> tuple[Turn, ...]:
    """Return ``turns`` with a person as the author of those that an export of this program names."""
    try:
        numbers: Any = json.loads(read_text(row, "authors"))[HUMAN]
    except (KeyError, TypeError, ValueError, RecursionError):
        return turns
    if not isinstance(numbers, list):
        return turns
    return tuple(replace(turn, model=HUMAN) if turn.number in numbers else turn for turn in turns)


def _find_agents(models: Mapping[str, str]) -> tuple[str, ...]:
    """Return the one agent of a question or of a translation, which tells the kind of the session."""
    alone = "translator" if "translator" in models else "assistant"
    return (alone,) if models and "user" not in models and alone in models else ()


def _list_messages(
    row: Mapping[str, Any], shape: ChatKeys, roles: Mapping[Speaker, str]
) -> Iterator[ParsedMessage]:
    """Yield the messages with turn numbers, in which the user's are odd."""
    messages: object = row.get(shape.messages)
    if not isinstance(messages, list):
        raise NotAChat(f"it has no {shape.messages}")
    turned = row.get("side") == "user"
    number = 0
    opened = not turned
    for message in cast("list[object]", messages):
        speaker, text = _read_message(message, shape)
        if speaker is None:
            continue
        if not opened:
            # The first message of a chat from the user's side is the request to begin.
            opened = True
            continue
        if turned:
            speaker = "user" if speaker == "assistant" else "assistant"
        number += 1 if (number % 2 == 0) == (speaker == "user") else 2
        extra = pick_extra(cast("dict[str, Any]", message), {shape.role, shape.content, *_MESSAGE_KEYS})
        yield ParsedMessage(number, speaker, roles[speaker], text, extra=extra)


def _read_message(message: object, shape: ChatKeys) -> tuple[Speaker | None, str]:
    if not isinstance(message, dict):
        raise NotAChat("one of its messages is not an object")
    parts = cast("dict[str, Any]", message)
    role, text = parts.get(shape.role), parts.get(shape.content)
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise NotAChat(f"it has a message of {role!r:.60}")
    if parts.get("tool_calls"):  # A tool call; the text follows in a later message.
        return None, ""
    if not isinstance(text, str):
        raise NotAChat("one of its messages is not a text")
    return _SPEAKERS[role], text


# Instructions with their outputs, a row for each round: ``camel-instructions`` and ``alpaca``.
#
# Rows of one conversation become one session, wherever they are in the file. What both sides said is written
# in the form of the protocol again; a row of another program's ``alpaca`` becomes a question and its answer.


CAMEL = "camel-instructions"
ALPACA = "alpaca"
_KNOWN = frozenset(
    """id role_1 role_2 original_task specified_task planned_task mark termination_reason
    role_1_response role_1_message_id instruction input output""".split()
)
_KEYS_OF_ALPACA = frozenset(("instruction", "input", "output", "turn"))


def find_conversation(row: Row, form: str) -> tuple[str, ...] | None:
    """Return what the rows of one conversation have in common; None if each row is one by itself."""
    keys = ("id", "role_1", "role_2") if form == CAMEL else ("run", "session") if form == ALPACA else ()
    content = row.lower
    names = tuple(read_text(content, key) for key in keys)
    tasks = (read_text(content, "original_task"), read_text(content, "specified_task"))
    return (*names, *tasks) if names and all(names) else None


def read_instructions(rows: Sequence[Row], origin: Origin) -> Session:
    """Return the session of CAMEL's instructions of one conversation.

    Raises:
        NotAChat: a required part is missing.
    """
    first = rows[0].lower
    roles, task = read_roles(first), read_task(first)
    messages = _restore_messages(rows, "role_1_message_id", roles, _KNOWN)
    turns = build_turns(messages, origin.model)
    return Session(
        id=read_id(first.get("id"), rows[0].stem),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=task,
        provenance=origin.provenance(CAMEL, collect_extra({}, messages)),
        turns=turns,
        ending=build_ending(read_text(first, "termination_reason"), turns),
        mark=read_text(first, "mark") or None,
    )


def read_alpaca(rows: Sequence[Row], origin: Origin) -> Session:
    """Return the session of an instruction of another program, or of those of one conversation that was exported here.

    Raises:
        NotAChat: instruction or output is missing.
    """
    first = rows[0].lower
    roles, models, values = read_own_roles(first), _read_object(first, "models") or {}, _read_values(first)
    ours = isinstance(first.get("turn"), int)
    agents = ("assistant",) if not ours or (models and "user" not in models) else ()
    known = _KEYS_OF_ALPACA | _name_row_keys(values)
    messages = _restore_messages(rows, "turn", roles, known, plain=bool(agents))
    turns = _restore_people(build_turns(messages, origin.model), first)
    digest = hashlib.sha256("\0".join(turn.text for turn in turns).encode()).hexdigest()
    return Session(
        id=read_id(first.get("session") or first.get("id"), digest[:12]),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=read_own_task(first, str(turns[0].text)),
        provenance=origin.provenance(ALPACA, collect_extra({}, messages), agents=agents, models=models),
        turns=turns,
        ending=build_ending(read_text(first, "ending"), turns)
        if ours and not agents
        else Ending("answered", turns[-1].number, "assistant", ""),
        values=values or {},
        mark=read_text(first, "mark") or None,
    )


def _read_number(row: Row, key: str) -> int:
    number = row.lower.get(key)
    return number if isinstance(number, int) and 0 <= number < 10**6 else 0


def _number_rounds(rows: Sequence[Row], key: str) -> Iterator[int]:
    """Yield the number of each instruction's turn, which is odd; CAMEL's own files may count from 0."""
    last = -1
    for row in rows:
        number = _read_number(row, key)
        number += 1 - number % 2
        last = max(number, last + 2)
        yield last


def _read_parts(row: Row) -> tuple[Instruction, Solution]:
    content = row.lower
    instruction, output = content.get("instruction"), content.get("output")
    if not (isinstance(instruction, str) and isinstance(output, str)):
        raise NotAChat("it has no instruction and output")
    if not instruction.strip():
        raise NotAChat("its instruction is empty")
    input_text = read_text(content, "input").strip()
    ask = Instruction(
        read_text(content, "instruction"),
        None if input_text.lower() in ("", "none") else input_text,
        read_text(content, "role_1_response"),
    )
    return ask, Solution(read_text(content, "output"))


def _restore_messages(
    rows: Sequence[Row], key: str, roles: Mapping[Speaker, str], known: frozenset[str], *, plain: bool = False
) -> list[ParsedMessage]:
    """Return the two messages of each row: ``plain``, or with the markers of the protocol."""
    messages: list[ParsedMessage] = []
    rows = sorted(rows, key=lambda row: _read_number(row, key))
    for row, number in zip(rows, _number_rounds(rows, key), strict=True):
        ask, answer = _read_parts(row)
        asked, answered = ask.instruction, answer.solution
        if not plain:
            preface = f"{ask.preface}\n" if ask.preface else ""
            asked = f"{preface}Instruction: {asked}\nInput: {ask.input or 'None'}"
            answered = f"Solution: {answered}"
        elif ask.input:
            asked += f"\n\n{ask.input}"
        extra = pick_extra(row.content, known)
        messages.append(ParsedMessage(number, "user", roles["user"], asked, ask, extra))
        messages.append(ParsedMessage(number + 1, "assistant", roles["assistant"], answered, answer))
    return messages
