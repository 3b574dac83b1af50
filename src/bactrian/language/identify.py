"""Which language a text is in: by its script and by its commonest words. For the ten languages of CAMEL's translations
and English; a coarse look at whole turns, which costs microseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

FEWEST_WORDS = 8
"""A text with fewer words is not judged; in Chinese and Japanese a word counts as two characters."""

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
# A third of what is said in a language is words like these.
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
"""Share of common words that shows a language."""
_CLEARLY = 1.5
"""How much larger it is than that of the expected language, with which it shares words."""


def identify_language(language: str | None) -> str:
    """The English name, in lower case, of a language given by name or code; English for None."""
    if not language:
        return "english"
    known = language.strip().lower()
    if known in _NAMES:
        return _NAMES[known]
    first = re.split(r"[-_ (,]", known, maxsplit=1)[0]
    return _NAMES.get(first, first)


def is_in_language(text: str, language: str) -> str | None:
    """The language of ``text`` if it is another one than ``language``; None if it is that one or cannot be told.

    Args:
        text: In lower case, without code.
        language: As :func:`name_of` gives it.
    """
    if not text.isascii():
        script = _script(text)
        if script is not None:
            return _unless_same(script, language)
    words = text.split()
    if len(words) < FEWEST_WORDS:
        return None
    expected = _share(words, language)
    if language == "english" and expected >= _ENOUGH:
        return None
    # Of a language that is not known here, only English can be told apart.
    known = language in _COMMON or language in _SCRIPTS
    others = [name for name in _COMMON if name != language] if known else ["english"]
    best = max(others, key=lambda name: _share(words, name))
    share = _share(words, best)
    return best if share >= max(_ENOUGH, _CLEARLY * expected) else None


def _share(words: list[str], language: str) -> float:
    common = _COMMON.get(language)
    return sum(word in common for word in words) / len(words) if common else 0.0


def _script(text: str) -> str | None:
    """The language whose script most of ``text`` is in; None if that is the Latin one, or too little to tell."""
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


def _unless_same(found: str, language: str) -> str | None:
    if found == language:
        return None
    # Cyrillic, Devanagari and Arabic write more languages than one.
    known = language in _COMMON or language in _SCRIPTS
    return found if known else None
