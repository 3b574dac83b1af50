"""Role flip: an agent plays the other's part (paper, section 4.1).

The AI assistant flips when it instructs: a line begins with ``Instruction:``, it says that it is the other role or
will give the instructions, or it hands the AI user a piece of the work and wants to see it. Imperatives *inside* a
solution (a recipe, a manual, a letter, an exercise that was asked for) are no flip, nor is asking for material that
the instruction left out.

The AI user flips when it solves: it begins with ``Solution:``, ends with ``Next request.``, answers the instruction
that it has just given, offers its help, or waits for instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.words import strip_quotations
from bactrian.records.finding import Finding
from bactrian.records.turn import Instruction

_LINE = r"^[ \t>#*_\-]*"
_INSTRUCTION_LINE = re.compile(
    _LINE + r"(?:here(?:'s|’s| is| are)[ ])?(?:(?:my|your|the|next|first|second|new)[ ]){0,2}"
    r"(?:instruction|anweisung|instrucci[oó]n|istruzione|instru[cç][aã]o|инструкция|指令|指示|지시)"
    r"(?:[ ]for[ ]you|[ ]to[ ]you)?(?:[ ]\d+)?[*_]*[ ]?[:：]",
    re.MULTILINE | re.IGNORECASE,
)
_INSTRUCTIONS_AND_INPUT = re.compile(
    _LINE + r"instructions[*_]*:[^\n]*\n+" + _LINE[1:] + r"input[*_]*:", re.MULTILINE | re.IGNORECASE
)
_INSTRUCTION_HINTS = ("instruc", "anweisung", "istruzione", "инструкция", "指令", "指示", "지시")
_SOLUTION_LINE = re.compile(
    _LINE
    + r"(?:solution|lösung|soluci[oó]n|soluzione|solução|решение|解决方案|解决办法|解決策)[*_]*[ ]?[:：]",
    re.MULTILINE | re.IGNORECASE,
)
_SOLUTION_HINTS = ("solu", "lösung", "soluzione", "решение", "解")

_ANSWERED_IN_LINE = re.compile(r"\binput:[ \t*_]*none\.?[ \t*_]+solution:", re.IGNORECASE)

_GIVES_INSTRUCTIONS = re.compile(
    r"\bmy (?:next |first )?instruction (?:for|to) you\b"
    r"|\bi(?:'ll| will| am going to|'m going to)(?: now)? (?:be the one to )?(?:instruct you|give you (?:the|my"
    r"|your) "
    r"(?:next |first )?instructions?)"
    r"|\b(?:waiting for|wait for|give me|start your answer with|provide)(?: me)?(?: with)? (?:the |your "
    r"|a )?[\"']?solution\b"
)
_WORK = (
    r"(?:write|create|draft|make|run|build|find(?: out)?|list|calculate|compute|design|prepare|explain|describe"
    r"|solve|test"
    r"|translate|differentiate|measure|rewrite|implement|add|compare|check|do|complete|choose|work out|name"
    r"|research|analy[sz]e"
    r"|develop|plan|identify|summari[sz]e|outline|suggest|revise|edit|review|send|provide|show|tell|give|set up"
    r"|take|try)"
)
# Each search is made only if a cheap look finds a piece of text that it cannot do without.
_HANDS_OVER = (
    (
        ("you to ", "you now ", "you also ", "you then ", "you next ", "you all "),
        re.compile(
            r"\bi(?: would|'d)?(?: now| also| then)? (?:want|need|like|ask|expect|require)"
            r" you (?:now |also |then |next |all )?to (?:now |please |first )?"
            r"(?!(?:know|understand|remember|realize|realise|note|notice|see|feel|be|have|imagine|consider|keep|think)\b)"
            r"[a-z]+"
        ),
    ),
    (
        (
            "your next",
            "your first",
            "your new",
            "your second",
            "your final",
            "your task",
            "your job",
            "your turn",
            "now you try",
            "now, you try",
            "now you go",
        ),
        re.compile(
            r"\byour (?:next |first |new |second |final )?(?:task|job|assignment|turn|homework)(?: now)? (?:is"
            r"|will be) to\b"
            r"|\byour (?:next|first|new) (?:task|job|assignment|instruction|step)(?: now)? (?:is|will be)\b"
            r"|\bit(?:'s| is) (?:now )?your turn\b|\bnow,? your turn\b|\bnow,? you (?:try|go)\b"
        ),
    ),
    (
        (
            "over to you",
            "from you",
            "you should do",
            "you have to do",
            "you must do",
            "you need to do",
            "you will do",
        ),
        re.compile(
            r"\bover to you\b|\bwhat i (?:need|want|expect) from you\b"
            r"|\bhere(?:'s| is) what you (?:should|have to|must|need to|will) do next\b"
        ),
    ),
)
_MOVES_ON = re.compile(
    rf"\b(?:let(?:'s| us) move on|moving on)\b[^.!?\n]{{0,30}}[.,:;!]\s*(?:now,? )?you (?:will|must|should"
    rf"|have to|need to) (?:now )?{_WORK}\b"
)
# What a tutorial says as well: a flip only if the assistant wants to see the result.
_MAY_HAND_OVER = re.compile(
    rf"\byou (?:will|must|should|have to|need to) now {_WORK}\b|\bnow,? you (?:will|must|should|have to|need to"
    rf"|can) {_WORK}\b"
    rf"|(?:[\n.!?]\s*|\band )you (?:will |must |have to |should |can )?{_WORK} (?:the|a|an|your|my|it|this|that"
    rf"|these|three|two)\b"
)
_GRADES = re.compile(
    r"\b(?:i will|i'll|let me|so (?:that )?i can) (?:then )?(?:check|review|grade|evaluate|correct|look over"
    r"|tell you whether"
    r"|give you feedback)(?: (?:it|them|your|on|what|the result|whether)\b|[.!])"
)
"""What one says whose turn it is to judge."""
_WANTS_BACK = re.compile(
    r"\b(?:show|send|share|tell|report|give|bring|return|submit|hand)\b(?! me (?:know|(?:with )?(?:the |your "
    r"|an? )?(?:next |new |first |further |more )*(?:instructions?|requests?|tasks?"
    r"|inputs?)\b))[^.!?\n]{0,60}?\b(?:to |with )?me\b(?!@)"
    r"|\b(?:post|put|paste) (?:it|them|the \w+) here\b|\bshow your work\b"
)
_MATERIAL = re.compile(r"\b(?:provide|send|give|tell|show|suggest)\Z")
_FEW = 3
"""Sentences of a reply in which each counts."""
_SENTENCE_END = re.compile(r"[.!?](?:\s|\Z)")
_ORDER = re.compile(
    rf"(?:^|[.!?:]\s+|\n)(?:(?:now|next|then|first|after that|also|please|and|for next time|by \w+|could you"
    rf"|can you)[, ]+){{0,3}}{_WORK}\b"
    rf"|\b(?:for next time|next),? {_WORK}\b"
)
_PLEASE_WORK = re.compile(
    r"\b(?:please|can you|could you|would you) (?:please )?(?:\w+ly )?(?:now |then |next )?(?:write|create|draft"
    r"|run|build|calculate"
    r"|compute|design|prepare|explain|describe|solve|translate|rewrite|implement|compare|complete the|develop"
    r"|summari[sz]e|outline|analy[sz]e)\b"
)
# Asking for material that the instruction left out is what an honest assistant does.
_MISSING = re.compile(
    r"\b(?:no|not|isn't|aren't|wasn't|missing|without|cannot|can't|need|unclear|more (?:details?|information"
    r"|context))\b[^.!?]{0,60}"
    r"\b(?:attached|given|provided|included|available|see|access|know|input|text|file|data|details?|information"
    r"|context)\b"
)
_ME = (" me ", " me.", " me,", " me!", " me\n", " here", "your work")
_PLEASE = ("please", "can you", "could you", "would you")
# An instruction that asks for words to somebody: what the solution orders, it orders that person.
_ADDRESSED = re.compile(
    r"\b(?:letters?|e-?mails?|messages?|scene|story|stories|novel|dialogues?|monologue|(?:film|video|movie|call"
    r"|phone|sales"
    r"|support|podcast) script|speech|song|lyrics?|poem|quiz(?:zes)?|exercises?|homework|interview|prompts?"
    r"|announcement"
    r"|invitation|adventure|worksheet|conversation|role-?play|lesson|memo)\b"
)
# An instruction that asks for words to anybody who reads them.
_PUBLISHED = re.compile(
    r"\b(?:play|questions|instructions?|card|reply|manual|tutorial|handout|poster|checklist|recipe|guide|posts?"
    r"|caption"
    r"|newsletter|advert\w*|ad|tweets?|flyer|leaflet|brief|briefing|rules)\b"
)
_AT_ONCE = 40
"""Characters; what hands work over so early is no letter."""

_USER_OFFERS = re.compile(
    r"\b(?:how (?:can|may) i (?:help|assist)|(?:as|i am|i'm) your (?:ai )?assistant|as an ai\b|i(?:'m"
    r"| am) an ai\b|thank you for (?:the|your) (?:instruction|task|request)\b|i hope (?:this"
    r"|that) helps|i can (?:help|assist)(?: you)?\b|what would you like (?:me|us) to\b"
    r"|(?:i am|i'm|i'd be|i would be) (?:here|happy|glad|ready) to (?:help|assist)(?: you)?\b"
    r"|let me know (?:what|if) you (?:want|need|would like|have)|(?:as|like) you (?:requested|asked|instructed)"
    r"|(?:what is|what's|give me|provide|waiting for|ready for)(?: me)?(?: with)? (?:your|the|my)"
    r" (?:first |next )?(?:instruction|request|task)"
    r"|i(?:'ll| will) (?:solve|provide (?:a|the|you with a) solution|do my best to help|help you))\b"
)
_USER_OFFER_HINTS = (
    "assist",
    "help",
    "let me know",
    "you requested",
    "you asked",
    "you instructed",
    "instruction",
    "request",
    "an ai",
    "thank you for",
    "solve",
    "solution",
)
_USER_DELIVERS = re.compile(
    r"\A\W*(?:(?:sure|certainly|of course|absolutely|okay|ok|yes|great)\b[^\n.]{0,60}?[!,.:]\s*)?"
    r"(?:here(?:'s| is| are) (?:the|a|an|your|some)\b(?! (?:input|data|errors?|output|traceback|message|results?"
    r"|numbers?|details?|information|file|next"
    r"|task))|i(?:'ve| have) (?:completed|written|created|finished|added|done|made)\b)"
)
_ASKS = re.compile(r"\?|\bplease\b|\b(?:can|could|would|will) you\b|\bi (?:want|need|would like|'d like)\b")
"""What a user says that still instructs, without the marker."""
_HANDS_IN = re.compile(
    r"\bhere(?:'s| is| are) (?:my|our)\b|\b(?:error|fails?|does not work|doesn't work|i get)\b"
)
_USER_ACCEPTS = re.compile(
    r"\A\W*(?:sure|certainly|of course|absolutely)\b[^\n]{0,120}?\b(?:here|happy|glad|i(?:'ll| will| can|'d))\b"
)


def detect_role_flips(reading: SessionReading) -> Iterator[Finding]:
    """Turns in which an agent plays the other's part."""
    if not reading.role_play:
        return
    session = reading.session
    names = (session.assistant.name.lower(), session.user.name.lower())
    for heard in reading.heard:
        found = _user(heard, names[0]) if heard.by_user else _assistant(heard, *names)
        if found is not None:
            confidence, quote = found
            yield reading.make_finding(heard, "role_flip", confidence, quote)


def _assistant(heard: HeardTurn, own: str, other: str) -> tuple[float, str] | None:
    lower = heard.lower
    text = heard.plain
    if any(hint in lower for hint in _INSTRUCTION_HINTS):
        flip = _INSTRUCTION_LINE.search(text) or _INSTRUCTIONS_AND_INPUT.search(text)
        if flip is not None:
            # A prompt or a template that was asked for may well hold the word.
            asked_for = "instruction" in heard.asked.lower() and heard.turn.said is not None
            return (0.4 if asked_for else 1.0), text[flip.start() :]
    if "you" not in lower and "please" not in lower and " me" not in lower:
        return None
    spoken = strip_quotations(lower)
    part = _says_it_is(spoken, other) or _says_you_are(spoken, own)
    if part is None and ("instruct" in spoken or "solution" in spoken):
        part = _GIVES_INSTRUCTIONS.search(spoken)
    if part is not None:
        return 0.9, text[part.start() :]
    return _hands_over(f"\n{spoken}", f"\n{text}", heard.asked.lower())


def _hands_over(spoken: str, text: str, asked: str) -> tuple[float, str] | None:
    """Where the assistant gives the user work to do. ``spoken`` is ``text`` in lower case without quotations."""
    wants_back = _WANTS_BACK.search(spoken) if _any_of(_ME, spoken) else None
    for hints, pattern in _HANDS_OVER:
        found = pattern.search(spoken) if _any_of(hints, spoken) else None
        if found is None or (_MATERIAL.search(found[0]) and _MISSING.search(spoken)):
            continue
        if found.start() < _AT_ONCE or not _ADDRESSED.search(asked):
            return (0.8 if wants_back or _ORDER.search(spoken) else 0.65), text[found.start() :]
    please = _PLEASE_WORK.search(spoken) if _any_of(_PLEASE, spoken) else None
    order = _wanted_back(spoken, wants_back, please)
    if order is None and (please is None or not _is_main_point(spoken, please)):
        return None
    if _MISSING.search(spoken) or _ADDRESSED.search(asked) or _PUBLISHED.search(asked):
        return None
    begins = order or please
    return None if begins is None else (0.7 if order else 0.6, text[begins.start() :])


def _wanted_back(
    spoken: str, wants_back: re.Match[str] | None, please: re.Match[str] | None
) -> re.Match[str] | None:
    """An order whose result the assistant wants to see, or to judge."""
    judges = _GRADES.search(spoken) is not None or _MOVES_ON.search(spoken) is not None
    if wants_back is None and not judges:
        return None
    addressed = _MAY_HAND_OVER.search(spoken) or please
    order = _ORDER.search(spoken) or addressed
    if order is None or (wants_back is None and addressed is None):
        return None
    # "Let me check: …" judges one's own work.
    return order if judges or wants_back is None or order.start() < wants_back.end() else None


def _is_main_point(spoken: str, please: re.Match[str]) -> bool:
    """True if a request is most of what is said, or the next step; not one of many pieces of advice."""
    end = _SENTENCE_END.search(spoken, please.end())
    sentence = spoken[please.start() : end.start() if end else None]
    return (
        len(_SENTENCE_END.findall(spoken.strip())) <= _FEW
        or re.search(r"\b(?:now|next|then)\b", sentence) is not None
    )


def _any_of(hints: tuple[str, ...], text: str) -> bool:
    return any(hint in text for hint in hints)


def _user(heard: HeardTurn, own: str) -> tuple[float, str] | None:
    lower = heard.lower
    text = heard.plain
    instructs = isinstance(heard.turn.said, Instruction)
    solution = _SOLUTION_LINE.search(text) if any(hint in lower for hint in _SOLUTION_HINTS) else None
    if solution is None and instructs:
        solution = _ANSWERED_IN_LINE.search(text)
    if solution is not None:
        return (0.9 if instructs else 1.0), text[solution.start() :]
    if instructs or heard.is_done:
        return None
    if lower.rstrip(" \n.*_").endswith("next request"):
        return 0.9, text[-40:]
    part = _says_it_is(lower, own)
    if part is not None:
        return 0.9, text[part.start() :]
    if any(hint in lower for hint in _USER_OFFER_HINTS):
        offer = _USER_OFFERS.search(lower)
        if offer is not None:
            return 0.75, text[offer.start() :]
    if _ORDER.search(lower) or _ASKS.search(lower):
        return None
    delivers = _USER_DELIVERS.search(lower) or _USER_ACCEPTS.search(lower)
    if delivers is not None:
        return 0.75, text
    if "```" in heard.turn.text and not _HANDS_IN.search(lower):
        return 0.6, heard.turn.text[heard.turn.text.find("```") :]
    return None


def _says_it_is(text: str, role: str) -> re.Match[str] | None:
    """Where a speaker says that it is ``role``."""
    if len(role) < 3 or role not in text:
        return None
    return re.search(
        rf"\b(?:as|i am|i'm) (?:the|a|an|your) {re.escape(role)}\b(?=[ ,]+(?:i\b|here\b|and you\b))", text
    )


def _says_you_are(text: str, role: str) -> re.Match[str] | None:
    """Where a speaker says that the one it talks to is ``role``."""
    if len(role) < 3 or role not in text:
        return None
    return re.search(rf"\byou(?: are|'re) (?:the|a|an|my) {re.escape(role)}\b", text)
