"""Words and quotations of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from types import MappingProxyType

from bactrian.errors import InputError
from bactrian.records.session import Role

STOP_WORDS = frozenset(
    (
        "a an the and or but of to in on at by for from with without into onto as is are was were be been "
        "being am it its this that these those i you he she we they me him her us them my your his our their "
        "so then than too also not no do does did done has have had will would can could may might shall "
        "should must there here which who whom whose what when where how if please each every all any some "
        "more most very just only own same such up out about per none"
    ).split()
)
"""English function words."""

_MARKS = "\u0300-\u036f\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
"""Vowel signs and accents that follow a letter; in Hindi, they belong to the letter."""
_MARKED = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
WORD = re.compile(rf"{_MARKED}(?:'{_MARKED})*")
"""A word of letters and digits, with the signs of its letters and with apostrophes between them."""
_TOKEN = re.compile(r"[^\W_]+")
# Chinese, Japanese, Thai, Lao and Khmer have no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ENDINGS = (
    "ations",
    "ation",
    "ments",
    "ment",
    "ings",
    "ing",
    "ions",
    "ion",
    "ies",
    "ers",
    "ed",
    "es",
    "ly",
    "er",
    "s",
    "e",
)
_STEM = 6
_QUOTED = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|«[^»\n]{1,400}»|「[^」\n]{1,400}」")


def tokenize(text: str) -> list[str]:
    """Return the words of ``text`` in lower case; for scripts without spaces, pairs of adjacent characters."""
    lower = text.lower()
    found = _TOKEN.findall(lower)
    if lower.isascii() or _UNSPACED.search(lower) is None:
        return found
    return [piece for token in found for piece in _split_token(token)]


_IRREGULAR: Mapping[str, str] = MappingProxyType(
    {
        "written": "write",
        "wrote": "write",
        "built": "build",
        "drawn": "draw",
        "drew": "draw",
        "made": "make",
        "chosen": "choose",
        "chose": "choose",
        "choice": "choose",
        "given": "give",
        "gave": "give",
        "shown": "show",
        "found": "find",
        "said": "say",
        "told": "tell",
        "done": "do",
        "taken": "take",
        "sold": "sell",
        "sent": "send",
        "explanation": "explain",
        "proof": "prove",
        "decision": "decide",
        "summary": "summarize",
        "summaries": "summarize",
        "maintenance": "maintain",
        "definition": "define",
        "comparison": "compare",
        "analyses": "analyze",
    }
)


def stem(word: str) -> str:
    """Return an approximate stem of an English word: ``evaluate`` and ``evaluation`` give ``evalu``."""
    # British and American spelling; analysis, analyse, analyze.
    word = _IRREGULAR.get(word, word).replace("z", "s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    # write, writing; plan, planned
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:_STEM]


def strip_quotations(text: str) -> str:
    """Replace text in quotation marks with spaces, so that positions stay the same."""
    if '"' not in text and text.isascii():
        return text
    return _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)


def _split_token(token: str) -> list[str]:
    if _UNSPACED.search(token) is None:
        return [token]
    if len(token) == 1:
        return [token]
    return [token[i : i + 2] for i in range(len(token) - 1)]


# Similarity of sets of words.


def compute_jaccard(one: Set[str], other: Set[str]) -> float:
    """Return the share of the words in the union that both sets contain (Jaccard 1901); 0 if the sets are disjoint."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


# Language identification by script and by common words.
#
# Covers English and the ten languages of CAMEL's translations. A coarse check of whole turns that takes
# microseconds.


FEWEST_WORDS = 8
"""Texts with fewer words are not identified; in Chinese and Japanese, two characters count as a word."""

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "ar": "arabic",
        "de": "german",
        "en": "english",
        "es": "spanish",
        "fr": "french",
        "hi": "hindi",
        "it": "italian",
        "ja": "japanese",
        "ko": "korean",
        "ru": "russian",
        "zh": "chinese",
        "deutsch": "german",
        "español": "spanish",
        "français": "french",
        "italiano": "italian",
        "русский": "russian",
        "中文": "chinese",
        "日本語": "japanese",
        "한국어": "korean",
        "العربية": "arabic",
        "हिन्दी": "hindi",
        "mandarin": "chinese",
        "simplified": "chinese",
        "traditional": "chinese",
        "castilian": "spanish",
        "american": "english",
        "british": "english",
    }
)
_SCRIPTS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "japanese": re.compile(r"[\u3040-\u30ff]"),
        "chinese": re.compile(r"[\u3400-\u9fff]"),
        "korean": re.compile(r"[\uac00-\ud7af]"),
        "russian": re.compile(r"[\u0400-\u04ff]+"),
        "arabic": re.compile(r"[\u0600-\u06ff]+"),
        "hindi": re.compile(r"[\u0900-\u097f]+"),
    }
)
_CHARACTERS_PER_WORD: Mapping[str, float] = MappingProxyType({"japanese": 2, "chinese": 2, "korean": 3})
# Words like these make up a third of a text.
_COMMON: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "english": frozenset(
            (
                "the of and to in a is that for it as was with be by on not he i this are or his from at which but "
                "have an had they you were their one all we can her has there been if more when will would who so "
                "no "
                "your it's i'm use them then into our how what these its also should each any my do about"
            ).split()
        ),
        "german": frozenset(
            (
                "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an "
                "werden "
                "aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur "
                "oder aber vor zur bis mehr durch man sein wurde wenn ich wir kann ihr ihre diese dieser können"
            ).split()
        ),
        "french": frozenset(
            (
                "le la les de des du et un une en que qui dans pour est pas sur plus au avec par ce il sont ne se "
                "à "
                "vous nous je cette ces son sa ses aux ou mais comme elle être votre leur été c'est d'un d'une "
                "peut "
                "si y tout même ont"
            ).split()
        ),
        "spanish": frozenset(
            (
                "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha "
                "me "
                "si sin sobre este ya entre cuando todo esta ser son dos también fue había era muy años hasta "
                "desde "
                "está puede nos tu"
            ).split()
        ),
        "italian": frozenset(
            (
                "di e il la che in a per un è non le con del si da una i della sono come dei al più nel alla gli "
                "lo "
                "ha ma anche delle questo su mi se o dal ai quando nella essere ci tra cui degli puoi tuo tua"
            ).split()
        ),
    }
)
_LATIN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ENOUGH = 0.16
"""Minimum share of common words that identifies a language."""
_CLEARLY = 1.5
"""Minimum ratio of this share to that of the expected language, because languages share words."""


def identify_language(language: str | None) -> str:
    """Return the lower-case English name of a language given by name or code; English for None."""
    if not language:
        return "english"
    known = language.strip().lower()
    if known in _NAMES:
        return _NAMES[known]
    first = re.split(r"[-_ (,]", known, maxsplit=1)[0]
    return _NAMES.get(first, first)


def detect_other_language(text: str, language: str) -> str | None:
    """Return the language of ``text`` if it differs from ``language``; None if it is the same or unclear.

    Args:
        text: In lower case, without code.
        language: A name from :func:`identify_language`.
    """
    if not text.isascii():
        script = _detect_script(text)
        if script is not None:
            return _select_other(script, language)
    words = text.split()
    if len(words) < FEWEST_WORDS:
        return None
    expected = _measure_share(words, language)
    if language == "english" and expected >= _ENOUGH:
        return None
    # For an unknown language, only English can be recognized as different.
    known = language in _COMMON or language in _SCRIPTS
    others = [name for name in _COMMON if name != language] if known else ["english"]
    best = max(others, key=lambda name: _measure_share(words, name))
    share = _measure_share(words, best)
    return best if share >= max(_ENOUGH, _CLEARLY * expected) else None


def _measure_share(words: list[str], language: str) -> float:
    common = _COMMON.get(language)
    return sum(map(common.__contains__, words)) / len(words) if common else 0.0


def _detect_script(text: str) -> str | None:
    """Return the language whose script most of ``text`` uses; None for Latin script or too little text."""
    if max(text) < "\u0400":
        return None
    counts = {
        language: sum(map(len, pattern.findall(text)))
        if _CHARACTERS_PER_WORD.get(language, 0) == 0
        else len(pattern.findall(text))
        for language, pattern in _SCRIPTS.items()
    }
    kana = counts["japanese"]
    if kana and kana > 0.1 * (kana + counts["chinese"]):
        counts["japanese"] += counts.pop("chinese")
    best = max(counts, key=lambda language: counts[language])
    per_word = _CHARACTERS_PER_WORD.get(best, 5)
    latin = sum(map(len, _LATIN.findall(text))) - sum(counts.values())
    words = counts[best] / per_word
    return best if words >= FEWEST_WORDS and words > latin / 5 else None


def _select_other(found: str, language: str) -> str | None:
    if found == language:
        return None
    # Cyrillic, Devanagari and Arabic are used by several languages.
    known = language in _COMMON or language in _SCRIPTS
    return found if known else None


# Checks of user input: ideas, role names, descriptions, languages.


LONGEST_IDEA = 100_000
"""Most characters of an idea or of a role's description."""
LONGEST_NAME = 300
"""Most characters of the name of a role or of a language."""


def check_idea(text: str, field: str = "idea") -> str:
    """Return ``text`` unchanged if it can be the idea of a session.

    Raises:
        InputError: it is blank, too long, or cannot be sent (see :func:`check_value`).
    """
    return _checked(text, field, LONGEST_IDEA)


def check_name(text: str, field: str) -> str:
    """Return ``text`` unchanged if it can name a role or a language: one line that is not blank.

    Raises:
        InputError: it is blank, has several lines, is longer than :data:`LONGEST_NAME`, or cannot be sent.
    """
    _checked(text, field, LONGEST_NAME)
    if text.splitlines() != [text]:
        raise InputError(
            f"The {field} has more than one line.",
            next="Use a short name such as 'Stock Trader'; a role's description may have several lines.",
        )
    return text


def check_role(role: Role, field: str) -> Role:
    """Return ``role`` unchanged if its name and its description can be used.

    Raises:
        InputError: see :func:`check_name`; or the description is too long or cannot be sent.
    """
    check_name(role.name, field)
    if role.description:
        _checked(role.description, f"{field} description", LONGEST_IDEA)
    return role


def check_value(text: str, field: str) -> str:
    """Return ``text`` unchanged if it can be sent to a model and stored.

    Raises:
        InputError: it contains a NUL character or half of a surrogate pair.
    """
    if "\0" in text:
        raise InputError(
            f"The {field} contains a NUL character, at position {text.index(chr(0)) + 1:,}.",
            next="Take it out: it cannot be stored. A NUL often means that the text is a binary file.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The {field} is not valid Unicode text, at position {error.start + 1:,}.",
            next="Give it as UTF-8.",
        ) from error
    return text


def _checked(text: str, field: str, limit: int) -> str:
    if not text.strip():
        raise InputError(f"The {field} is empty.", next="Say it in a few words.")
    if len(text) > limit:
        raise InputError(
            f"The {field} has {len(text):,} characters; the limit is {limit:,}.", next="Shorten it."
        )
    return check_value(text, field)
