"""A turn as the detector reads it: in sentences, words and speech acts, without the markers of the protocol."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from sys import intern
from typing import NamedTuple, Protocol

from bactrian.protocol.markers import MARKERS, NOTHING

# Vowel signs and accents that follow a letter; in Hindi, they belong to the letter.
_MARKS = "\u0300-\u036f\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
_MARKED = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
# A word of letters and digits, with the signs of its letters and with apostrophes between them.
WORD = re.compile(rf"{_MARKED}(?:'{_MARKED})*")


def compute_jaccard(words: Set[str], others: Set[str]) -> float:
    """Return the share of the words in the union that both sets contain (Jaccard 1901); 0 if the sets are disjoint."""
    shared = len(words & others)
    return shared / (len(words) + len(others) - shared) if shared else 0.0


# Speech acts: what a sentence does (promises, thanks, offers help, assigns work, …), in twelve languages.
# ``speech_acts.toml`` lists the words and phrases that tell, by act and language.


# Languages whose phrases are found anywhere in a sentence.
_UNSPACED_LANGUAGES = frozenset(("zh", "ja", "ko"))
_HEAD = 3  # characters by which word beginnings are indexed
_KEPT = 65_536  # words that are kept, with what is known of them

Acts = frozenset[str]
_NO_ACTS: Acts = frozenset()
_GOES_ON = "goes on"  # what two words show that may begin a phrase of three
_BEGINNING: Acts = frozenset((_GOES_ON,))


class _ActsOfWords(dict[str, Acts]):
    """The acts of words alone. Those of a new word are worked out and kept."""

    def __init__(
        self,
        words: Mapping[str, Acts],
        beginnings: Mapping[str, Sequence[tuple[str, Acts]]],
        endings: Sequence[tuple[str, Acts]],
    ) -> None:
        """Take the acts of whole words, of beginnings by their first characters, and of endings."""
        self._listed, self._beginnings, self._endings = words, beginnings, endings

    def __missing__(self, word: str) -> Acts:
        if len(self) >= _KEPT:
            self.clear()
        begun = self._beginnings.get(word[:_HEAD], ())
        acts = self[word] = self._listed.get(word, _NO_ACTS).union(
            *[acts for beginning, acts in begun if word.startswith(beginning)],
            *[acts for ending, acts in self._endings if word.endswith(ending)],
        )
        return acts


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Phrases by the acts that they show."""

    acts: tuple[str, ...]
    words: Mapping[str, Acts]  # the acts of any word alone
    # Phrases of two words. Those that begin longer phrases have :data:`_GOES_ON`, too.
    pairs: Mapping[tuple[str, ...], Acts]
    triples: Mapping[tuple[str, ...], Acts]
    anywhere: re.Pattern[str]  # Phrases of languages without spaces between words
    unspaced: Mapping[str, Acts]

    def find_acts(self, sentence: str, words: Sequence[str]) -> Acts:
        """Return the acts of a sentence in lower case, given its words, too."""
        shown = [
            *filter(None, map(self.words.__getitem__, words)),
            *filter(None, map(self.pairs.get, pairwise(words))),
        ]
        if not sentence.isascii():
            shown += [self.unspaced[match[1]] for match in self.anywhere.finditer(sentence)]
        acts = _unite(tuple(shown), _NO_ACTS)
        if _GOES_ON in acts:
            shown += filter(None, map(self.triples.get, zip(words, words[1:], words[2:], strict=False)))
            acts = _unite(tuple(shown), _BEGINNING)
        return acts


@lru_cache(maxsize=_KEPT)
def _unite(acts: tuple[Acts, ...], without: Acts) -> Acts:
    """Return all ``acts`` but those of ``without``. Equal acts are then one object, whose hash is known."""
    return _NO_ACTS.union(*acts) - without


@cache
def load_lexicon() -> Lexicon:
    """Load the built-in lexicon."""
    text = resources.files("bactrian.detect").joinpath("speech_acts.toml").read_text("utf-8")
    table: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(unicodedata.normalize("NFKC", text))
    phrases: defaultdict[str, set[str]] = defaultdict(set)
    beginnings: defaultdict[str, set[str]] = defaultdict(set)
    endings: defaultdict[str, set[str]] = defaultdict(set)
    unspaced: defaultdict[str, set[str]] = defaultdict(set)
    for act, languages in table.items():
        for language, listed in languages.items():
            for phrase in listed:
                if language in _UNSPACED_LANGUAGES:
                    unspaced[phrase].add(act)
                elif phrase.startswith("*"):
                    endings[phrase[1:]].add(act)
                elif phrase.endswith("*"):
                    beginnings[phrase[:-1]].add(act)
                else:
                    phrases[" ".join(WORD.findall(phrase)) or phrase].add(act)
    by_head: defaultdict[str, list[tuple[str, Acts]]] = defaultdict(list)
    for beginning, acts in sorted(beginnings.items()):
        by_head[beginning[:_HEAD]].append((beginning, frozenset(acts)))
    # A phrase may begin with another one: the act of the longer one counts as well as that of the shorter.
    for phrase, acts in unspaced.items():
        acts.update(*[unspaced[phrase[:end]] for end in range(1, len(phrase)) if phrase[:end] in unspaced])
    longest_first = sorted(unspaced, key=lambda phrase: (-len(phrase), phrase))
    listed = {tuple(phrase.split(" ")): frozenset(acts) for phrase, acts in phrases.items()}
    # Longer phrases are told by their first three words.
    triples = {words[:3]: acts for words, acts in listed.items() if len(words) > 2}
    opening = dict.fromkeys((words[:2] for words in triples), _BEGINNING)
    return Lexicon(
        acts=tuple(table),
        words=_ActsOfWords(
            {words[0]: acts for words, acts in listed.items() if len(words) == 1},
            by_head,
            tuple((ending, frozenset(acts)) for ending, acts in endings.items()),
        ),
        pairs=opening
        | {words: acts | opening.get(words, _NO_ACTS) for words, acts in listed.items() if len(words) == 2},
        triples=triples,
        anywhere=re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))"),
        unspaced={phrase: frozenset(acts) for phrase, acts in unspaced.items()},
    )


# A turn in sentences, without the markers of the protocol.


_STEM = 6  # characters by which words are compared: endings change
_FIRST, _LAST = 16, 6  # Sentences at either end of a long turn that are read
_TAIL = 60  # characters at the end that may contain the request for the next instruction

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
    rf"|(solu?ti?ons?(?:[ ]?&[ ]?actions?)?|answer|response|{_SOLUTION})){_COLON}"
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
_OPENING = '*_<[("'  # what may stand before the request for the next instruction
_APOSTROPHES = str.maketrans("\u2018\u2019", "''")
_DONE = re.compile(r"<?camel[_ ]?task[_ ]?done>?")
_FENCED = re.compile(r"(?:```|~~~)[^\n]*\n?(.*?)(?:```|~~~|\Z)", re.DOTALL)
_NO_INPUT = re.compile(rf"[\W_]*(?:{NOTHING}|nada|nenhuma?)?[\W_]*", re.IGNORECASE)
_COMMENT = ("#", "//", "--", "/*", "*", '"""', "'''", "%", ";", "<!--", "{-")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# Begins with a set of characters, which the search looks for far faster than for a choice of patterns.
_SENTENCE_END = re.compile(r"[.!?…।؟。！？\n](?:(?<=[\n。！？])[」』）\"”\s]*|[.!?…]*[\"'”’»)\]*_]*\s+)")
# Turns all ASCII characters but letters and digits into spaces.
_NO_WORD = bytes(code if chr(code).isalnum() else ord(" ") for code in range(128)).ljust(256)
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
    stems: list[str]  # the beginnings of its words, in order
    counted: list[str]  # the same, but a number is ``0``
    acts: Set[str]  # Its speech acts
    asks: bool
    has_number: bool
    has_quote: bool


class ReadTurn(NamedTuple):
    """A turn, read."""

    by_user: bool
    text: str
    instructs: bool  # A line begins with the marker of an instruction, in any language
    gives_input: bool
    solves: bool
    asks_next: bool
    is_done: bool  # Contains the done token
    prose: str  # the text in lower case, without markers and code
    code_lines: int  # Lines of code that are more than a comment
    has_code: bool
    sentences: list[Sentence]
    stems: list[str]  # of the sentences, then of the code
    asked: list[str]  # Stems of all but the input
    input: list[str]  # Stems of the input
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
        may_ask=any(mark in prose for mark in _QUESTION),
        may_count=bool(numbers),
        may_quote='"' in prose or not (prose.isascii() or _QUOTES.search(prose) is None),
    )
    stems = [stem for sentence in sentences for stem in sentence.stems]
    in_input = _list_stems(parts["input"]) if parts["input"] else []
    asked = stems
    if in_input:
        # The input comes last.
        asked = (stems if len(sentences) == len(pieces) else _list_stems(prose))[: -len(in_input)]
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
        input=in_input,
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


def _read_sentences(
    texts: Sequence[str], *, may_ask: bool, may_count: bool, may_quote: bool
) -> list[Sentence]:
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
                may_ask and text.rstrip("\"'”’»)]*_").endswith(_QUESTION),
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
    words = WORD.findall(text)
    if _UNSPACED.search(text) is None:
        return words
    return [piece for word in words for piece in _split_word(word)]


def _split_word(word: str) -> list[str]:
    if len(word) == 1 or _UNSPACED.search(word) is None:
        return [word]
    return [word[i : i + 2] for i in range(len(word) - 1)]
