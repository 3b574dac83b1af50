"""A turn as the detector reads it: without the markers of the protocol, in sentences, words and speech acts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cache
from sys import intern
from typing import NamedTuple, Protocol

from bactrian.detect.speech_acts import load_lexicon
from bactrian.language.markers import MARKERS, NOTHING
from bactrian.language.words import WORD

_STEM = 6
"""Characters by which words are compared: endings change."""
_KEPT = 65_536
"""Words that are kept."""
_FIRST, _LAST = 16, 6
"""Sentences at either end of a long turn that are read."""
_TAIL = 60
"""Characters at the end that may contain the request for the next instruction."""

_LEAD = r"[ \t>#*_\-\[({<|\"'/]*(?:(?:next|new|first|my|your|the|nouvelle|neue|nächste)[ _])?"
_COLON = r"[ \d\])}*_\"'>]*[ ]?[:：\-–=>]+[*_]*"


def _alternatives(marker: str, *more: str) -> str:
    words = [words[marker].lower() for words in MARKERS.values()]  # type: ignore[index]
    return "|".join(
        sorted({word for some in (*words, *more) for word in some.split("|")}, key=len, reverse=True)
    )


_INSTRUCTION = _alternatives("Instruction", "anweisungen|instrucciones|instruções|instrução|задание|указание")
_INPUT = _alternatives("Input", "dati|ввод")
_SOLUTION = _alternatives("Solution", "solução|解決")
# Misspelt, too: weak models write "Instuction:".
_MARKER = re.compile(
    rf"{_LEAD}(?:(instr?u[ck]t?ti?ons?|{_INSTRUCTION})|(inputs?|{_INPUT})"
    rf"|(solu?ti?ons?|answer|response|{_SOLUTION})){_COLON}"
)
_NEXT = re.compile(
    r"(?:next (?:request|instruction|task)|"
    + _alternatives(
        "Next request",
        "nächste bitte|nächste aufgabe|prochaine instruction|prochaine consigne|prochaine tâche|siguiente instrucción",
        "siguiente tarea|próxima instrucción|próxima petición|próximo pedido|próxima solicitação|próxima instrução",
        "próxima tarefa|prossima istruzione|prossimo compito|следующее задание|следующее указание|следующую инструкцию",
        "下一个指令|下一条指令|下一步指令|下一步指示|下一个任务|次の指示|次のタスク|다음 지시|다음 지시사항|다음 작업",
        "अगला निर्देश|अगला कार्य|التعليمات التالية|تعليماتك التالية|المهمة التالية",
    )
    + r")(?:[ ,]+(?:please|bitte|por favor|per favore|s'il vous plaît|пожалуйста)|を(?:お願い(?:いた)?します|ください)"
    r"|[를을]? (?:주세요|부탁드립니다)| (?:दें|दीजिए)।?)?[\s.!。！？?*_)\]>\"']*\Z"
)
_OPENING = '*_<[("'
"""What may stand before the request for the next instruction."""
_APOSTROPHES = str.maketrans("\u2018\u2019", "''")
_DONE = re.compile(r"<?camel[_ ]?task[_ ]?done>?")
_FENCED = re.compile(r"(?:```|~~~)[^\n]*\n?(.*?)(?:```|~~~|\Z)", re.DOTALL)
_NO_INPUT = re.compile(rf"[\W_]*(?:{NOTHING}|nada|nenhuma?)?[\W_]*", re.IGNORECASE)
_COMMENT = ("#", "//", "--", "/*", "*", '"""', "'''", "%", ";", "<!--", "{-")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# Begins with a set of characters, which the search looks for far faster than for a choice of patterns.
_SENTENCE_END = re.compile(r"[.!?…।؟。！？\n](?:(?<=[\n。！？])[」』）\"”\s]*|[.!?…]*[\"'”’»)\]*_]*\s+)")
_NO_WORD = bytes(code if chr(code).isalnum() else ord(" ") for code in range(128)).ljust(256)
"""Turns all ASCII characters but letters and digits into spaces."""
_QUESTION = ("?", "？", "؟")
_QUOTES = re.compile('["“”«„「『]')
_DIGIT = re.compile(r"\d")
# Not \d+: for a single digit the search is faster.
_NUMBER = re.compile(r"\d\d*(?:[.,:/]\d+)*")


class Spoken(Protocol):
    """A turn: its text and its speaker."""

    @property
    def speaker(self) -> str: ...
    @property
    def text(self) -> str: ...


class Sentence(NamedTuple):
    """A sentence, in lower case."""

    text: str
    stems: list[str]
    """The beginnings of its words, in order."""
    counted: list[str]
    """The same, but a number is ``0``."""
    acts: Set[str]
    """Its speech acts."""
    asks: bool
    has_number: bool
    has_quote: bool


class ReadTurn(NamedTuple):
    """A turn, read."""

    by_user: bool
    text: str
    instructs: bool
    """A line begins with the marker of an instruction, in any language."""
    gives_input: bool
    solves: bool
    asks_next: bool
    is_done: bool
    """Contains the done token."""
    prose: str
    """The text in lower case, without markers and code."""
    code_lines: int
    """Lines of code that are more than a comment."""
    has_code: bool
    sentences: list[Sentence]
    stems: list[str]
    """Of the sentences, then of the code."""
    asked: list[str]
    """Stems of all but the input."""
    given: list[str]
    """Stems of the input."""
    numbers: frozenset[str]


def read_turns(turns: Sequence[Spoken]) -> list[ReadTurn]:
    """Read the turns of a conversation."""
    return [read_turn(turn.text, by_user=turn.speaker == "user") for turn in turns]


def read_turn(text: str, *, by_user: bool) -> ReadTurn:
    """Read one turn."""
    plain = (text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)).lower()
    is_done = "camel" in plain and _DONE.search(plain) is not None
    if is_done:
        plain = _DONE.sub(" ", plain)
    asks_next = _NEXT.search(plain, max(0, len(plain) - _TAIL))
    if asks_next:
        plain = plain[: asks_next.start()].rstrip(_OPENING)
    code = _FENCED.findall(plain) if "```" in plain or "~~~" in plain else []
    prose = _FENCED.sub(" \n", plain) if code else plain
    parts = _split_parts(prose)
    prose = "\n".join([part for part in parts.values() if part])
    numbers = _NUMBER.findall(prose)
    pieces = _split_sentences(prose)
    sentences = _read_sentences(
        [*pieces[:_FIRST], *pieces[-_LAST:]] if len(pieces) > _FIRST + _LAST else pieces,
        may_count=bool(numbers),
        may_quote='"' in prose or not (prose.isascii() or _QUOTES.search(prose) is None),
    )
    stems = [stem for sentence in sentences for stem in sentence.stems]
    given = _list_stems(parts["input"]) if parts["input"] else []
    asked = stems
    if given:
        # The input comes last.
        asked = (stems if len(sentences) == len(pieces) else _list_stems(prose))[: -len(given)]
    if code:
        in_code = " ".join(code)
        stems = stems + _list_stems(in_code)
        numbers += _NUMBER.findall(in_code)
    return ReadTurn(
        by_user=by_user,
        text=text,
        instructs="instruction" in parts,
        gives_input=bool(parts["input"]),
        solves="solution" in parts,
        asks_next=asks_next is not None,
        is_done=is_done,
        prose=prose,
        code_lines=sum(
            bool(line.strip()) and not line.strip().startswith(_COMMENT)
            for block in code
            for line in block.split("\n")
        ),
        has_code=bool(code),
        sentences=sentences,
        stems=stems,
        asked=asked,
        given=given,
        numbers=frozenset(numbers),
    )


def _split_parts(prose: str) -> dict[str, str]:
    """Return the text under each marker; under an empty name, what no marker precedes."""
    parts = {"": "", "input": ""}
    name, begin = "", 0
    for marker in _find_markers(prose):
        _add_part(parts, name, prose[begin : marker.start()])
        name = "instruction" if marker[1] else "input" if marker[2] else "solution"
        parts.setdefault(name, "")
        begin = marker.end()
    _add_part(parts, name, prose[begin:])
    # The input last, so that the sentences of an instruction come first.
    parts["input"] = parts.pop("input")
    return parts


def _find_markers(prose: str) -> Iterator[re.Match[str]]:
    """Yield the markers at the beginnings of lines. A search would look for these at each character."""
    begin = 0
    while begin >= 0:
        if marker := _MARKER.match(prose, begin):
            yield marker
            begin = marker.end()
        begin = prose.find("\n", begin) + 1 or -1


def _add_part(parts: dict[str, str], name: str, text: str) -> None:
    text = text.strip()
    if text and not (len(text) < _TAIL and _NO_INPUT.fullmatch(text)):
        parts[name] = f"{parts[name]}\n{text}".strip()


def _split_sentences(prose: str) -> list[str]:
    pieces: list[str] = []
    begin = 0
    for end in _SENTENCE_END.finditer(prose):
        pieces.append(prose[begin : end.end()].strip())
        begin = end.end()
    pieces.append(prose[begin:].strip())
    return [piece for piece in pieces if piece]


def _read_sentences(texts: Sequence[str], *, may_count: bool, may_quote: bool) -> list[Sentence]:
    find_acts, get_stem, count = (
        load_lexicon().find_acts,
        _load_stems().__getitem__,
        _load_counted().__getitem__,
    )
    sentences: list[Sentence] = []
    for text in texts:
        words = _tokenize(text)
        has_number = may_count and _DIGIT.search(text) is not None
        stems = [*map(get_stem, words)]
        sentences.append(
            Sentence(
                text,
                stems,
                [*map(count, stems)] if has_number else stems,
                find_acts(text, words),
                text.rstrip("\"'”’»)]*_").endswith(_QUESTION),
                has_number,
                may_quote and _QUOTES.search(text) is not None,
            )
        )
    return sentences


def _list_stems(text: str) -> list[str]:
    return [*map(_load_stems().__getitem__, _tokenize(text))]


class _KeptWords(dict[str, str]):
    """What a function makes of each word, kept. The same word is the same object then, whose hash is known."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change

    def __missing__(self, word: str) -> str:
        if len(self) >= _KEPT:
            self.clear()
        changed = self[word] = intern(self._change(word))
        return changed


@cache
def _load_stems() -> _KeptWords:
    return _KeptWords(lambda word: word[:_STEM])


@cache
def _load_counted() -> _KeptWords:
    return _KeptWords(lambda stem: "0" if stem[0].isdigit() else stem)


def _tokenize(text: str) -> list[str]:
    """Return the words; of scripts without spaces, pairs of characters."""
    if text.isascii():
        # The same words in a third of the time; an apostrophe between letters is part of a word.
        return WORD.findall(text) if "'" in text else text.encode().translate(_NO_WORD).decode().split()
    found = WORD.findall(text)
    if _UNSPACED.search(text) is None:
        return found
    return [piece for word in found for piece in _split_word(word)]


def _split_word(word: str) -> list[str]:
    if len(word) == 1 or _UNSPACED.search(word) is None:
        return [word]
    return [word[i : i + 2] for i in range(len(word) - 1)]
