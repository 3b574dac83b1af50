"""Language identification by script and by common words.

Covers English and the ten languages of CAMEL's translations. A coarse check of whole turns that takes microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

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
