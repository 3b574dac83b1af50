"""Refusal: an agent declines to do what it is asked.

The turn, or one of its first two sentences, says that its speaker cannot, may not or does not want to help, or the
endpoint filtered it. Declining one part and doing the rest ("I cannot call, but here is what you can say: …") is no
refusal, nor is asking for material that is missing, nor "cannot" in what was asked for: a letter, a lyric, a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.words import strip_quotations
from bactrian.records.finding import Finding
from bactrian.records.turn import Instruction

_OPENING = 400
"""Characters in which a refusal must begin."""
_LONGEST_REST = 500
"""Characters after which the rest is taken for work."""
_CANNOT = (
    r"(?:can ?not|can['’]?t|could ?n['’]?t|could not|am (?:not able|not capable of|unable)|['’]m (?:not able"
    r"|not capable of|unable)|won['’]?t"
    r"|will not"
    r"|(?:do|did) ?n[o'’]?t have (?:the )?(?:ability|capability|means|access)|(?:do not|don['’]t) (?:want|wish"
    r"|feel comfortable)"
    r"|refuse|decline|must decline|have to decline|(?:am|['’]m) (?:not (?:allowed|permitted|comfortable)"
    r"|programmed not))"
)
_HELP = (
    r"(?:help|assist|do (?:that|this|so)|fulfil\w*|comply|provide|answer|complete|create|write|generate|engage"
    r"|support|discuss"
    r"|participate|continue|perform|give|offer|make|execute|access|browse|carry|share|produce|take|physically"
    r"|directly|personally"
    r"|respond|respon\w+|process|proceed|to|with|your|this|that|it|\w+ing|recommend|advise|suggest|send|call|book"
    r"|open"
    r"|visit|promote)"
)
_REFUSES = re.compile(
    rf"\b(?:i|we)(?: really| simply| just| unfortunately| also)? ?{_CANNOT},? (?:\w+ )?{_HELP}\b"
    r"|\bas an? (?:[\w-]+ ){0,3}(?:ai|model|assistant|intelligence|llm|bot)\b(?: \w+ed [^,.\n]{0,50})?(?:,"
    r"| (?=i\b))[^.\n]{0,40}?\bi (?:can ?not"
    r"|can['’]?t|am (?:not able|unable)"
    r"|do not|don['’]t|am not)"
    r"|\b(?:i['’]?m|i am) (?:so |very |really )?sorry,? (?:but )?(?:i|we|that|this|it) (?:can ?not|can['’]?t"
    r"|is(?: not|n['’]t)|am (?:not|unable)|do(?: not|n['’]t))"
    r"|\b(?:it is|it['’]s|this is|that is|that['’]s) (?:not (?:possible|appropriate|ethical)|unethical|illegal"
    r"|impossible) for (?:me|an ai)"
    r"|\b(?:this|your|the) (?:request|instruction|task) (?:is|goes) (?:unethical|illegal|inappropriate|harmful"
    r"|against)"
    r"|\bagainst (?:my|openai['’]?s?|the) (?:programming|guidelines|policy|policies|principles|ethics"
    r"|content policy)\b"
    r"|\b(?:lo siento|lamento)\b[^.\n]{0,30}\bno puedo\b|\bno puedo (?:ayudar|proporcionar|realizar|cumplir)"
    r"|\b(?:tut mir leid|leider)\b[^.\n]{0,40}\b(?:kann ich|ich kann)\b[^.\n]{0,80}\bnicht\b|\bich kann (?:ihnen "
    r"|dir )?(?:dabei|damit|das|diese\w*) nicht"
    r"|\bje (?:suis )?(?:désolée?|regrette)\b[^.\n]{0,40}\bje ne (?:peux|suis) pas\b"
    r"|\bje ne peux (?:malheureusement )?pas\b"
    r"|\b(?:mi dispiace|purtroppo)\b[^.\n]{0,30}\bnon posso\b"
    r"|\bя не могу\b|\b(?:извините|простите)\b[^.\n]{0,40}\b(?:не могу|не можем)\b"
    r"|(?:抱歉|对不起|很遗憾)[^。\n]{0,20}(?:无法|不能|不可以)|申し訳[^。\n]{0,30}(?:できません|お答え|いたしかね)"
    r"|죄송(?:하지만|합니다)[^.\n]{0,40}(?:없습니다|수 없)|क्षमा[^।\n]{0,40}(?:नहीं|असमर्थ)|(?:آسف"
    r"|عذر)[^.\n]{0,30}(?:لا (?:أستطيع|يمكنني))"
)
_HINTS = (
    *(
        "can't",
        "can’t",
        "cannot",
        "can not",
        "cant ",
        "couldn",
        "could not",
        "unable",
        "not able",
        "won't",
        "won’t",
        "will not",
    ),
    *(
        "refuse",
        "decline",
        "as an ai",
        "language model",
        "have access",
        "ability",
        "capability",
        "comfortable",
        "sorry",
        "ethical",
    ),
    *(
        "illegal",
        "inappropriate",
        "against",
        "not allowed",
        "permitted",
        "want",
        "wish",
        "possible",
        "no puedo",
        "nicht",
        "ne peux",
    ),
    *("désolé", "non posso", "не мо", "无法", "不能", "不可以", "申し訳", "죄송", "क्षमा", "آسف", "عذر"),
)
_ASKS_FOR_MATERIAL = re.compile(
    r"\b(?:please|could you|can you|kindly) (?:\w+ )?(?:provide|attach|share|send|paste|upload|give|specify"
    r"|clarify|tell)\b"
    r"|\bno \w+(?: \w+)? (?:is|was|are|were|has been) (?:attached|given|provided|included)\b"
)
_PRAISES = re.compile(r"\b(?:enough|stress|overstate|ignore|forget|help (?:but|\w+ing))\b")
"""Praise such as "I cannot recommend it enough", which is no refusal."""
_STILL_WORKS = re.compile(
    r"```|^\s*(?:[-*•]|\d+[.)])\s|\bhere(?: is|['’]s| are)\b|\b(?:but|however|instead),? (?:\w+ )?(?:i can|here"
    r"|you can|let me|below)\b",
    re.MULTILINE,
)


def detect_refusals(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns that decline."""
    for heard in reading.heard:
        found = is_refusal(heard)
        if found is not None:
            confidence, quote = found
            yield reading.make_finding(heard, "refusal", confidence, quote)


def is_refusal(heard: HeardTurn) -> tuple[float, str] | None:
    """Return the confidence that a turn declines, and the words that show it."""
    if heard.turn.finish == "content_filter":
        return 1.0, heard.turn.text
    if isinstance(heard.turn.said, Instruction):
        return None
    opening = heard.body[:_OPENING].lower()
    if not any(hint in opening for hint in _HINTS):
        return None
    spoken = strip_quotations(opening)
    found = _REFUSES.search(spoken)
    if found is None or _PRAISES.search(spoken, found.start()) or spoken.count(". ", 0, found.start()) > 1:
        return None
    rest = heard.body[found.end() :]
    if (
        _ASKS_FOR_MATERIAL.search(rest.lower())
        or _STILL_WORKS.search(rest.lower())
        or len(rest) > _LONGEST_REST
    ):
        return 0.4, heard.body[found.start() :]
    return 0.9, heard.body[found.start() :]
