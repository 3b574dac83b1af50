from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.records.session import Provenance, Session
from benchmarks.labelled import conversation

TEXTS = {
    "english": "The market opens at nine and the prices move fast in the first hour of the day.",
    "german": "Der Markt öffnet um neun und die Preise bewegen sich in der ersten Stunde des Tages schnell.",
    "french": "Le marché ouvre à neuf heures et les prix bougent vite dans la première heure de la journée.",
    "spanish": "El mercado abre a las nueve y los precios se mueven rápido en la primera hora del día.",
    "italian": "Il mercato apre alle nove e i prezzi si muovono in fretta nella prima ora della giornata.",
    "russian": "Рынок открывается в девять, и цены быстро меняются в первый час торгового дня.",
    "chinese": "市场在九点开盘，第一个小时内价格变动很快，之后成交量会逐渐下降。",
    "japanese": "市場は九時に開き、最初の一時間は価格が速く動きます。その後は静かになります。",
    "korean": "시장은 아홉 시에 열리고 첫 한 시간 동안 가격이 빠르게 움직입니다.",
    "arabic": "يفتح السوق في التاسعة وتتحرك الأسعار بسرعة في الساعة الأولى من اليوم.",
    "hindi": "बाज़ार नौ बजे खुलता है और पहले घंटे में कीमतें तेज़ी से बदलती हैं।",
}
CODES = dict(zip(TEXTS, ("en", "de", "fr", "es", "it", "ru", "zh", "ja", "ko", "ar", "hi"), strict=True))


def session(language: str | None, answer: str, asked: str = "Instruction: …\nInput: None") -> Session:
    origin = Provenance(prompts="ai-society", prompts_hash="", protocol="free", language=language)
    return conversation(asked, f"Solution: {answer}\nNext request.", provenance=origin)


@pytest.mark.parametrize("spoken", TEXTS)
@pytest.mark.parametrize("expected", TEXTS)
def test_a_turn_in_another_language_than_the_sessions_is_found(expected: str, spoken: str) -> None:
    for name in (expected, expected.title(), CODES[expected]):
        found = find_behaviours(session(name, TEXTS[spoken]), ["wrong_language"])
        assert [finding.turn for finding in found] == ([] if spoken == expected else [2])


def test_without_a_recorded_language_english_is_expected() -> None:
    assert find_behaviours(session(None, TEXTS["english"]), ["wrong_language"]) == ()
    assert len(find_behaviours(session(None, TEXTS["german"]), ["wrong_language"])) == 1


NEAR_MISSES = {
    "a translation": ("Instruction: Translate the sentence into German.\nInput: None", TEXTS["german"]),
    "a quotation in English prose": (
        "Instruction: …",
        "The motto of the house is “Всё хорошо”, which is to say that all is well with the market and with us.",
    ),
    "code": (
        "Instruction: …",
        "```python\nder = die + das\nund = der(die, das, mit, von, zu, ist, nicht, ein)\n```",
    ),
    "a few words": ("Instruction: …", "Buenos días"),
    "a list of names": (
        "Instruction: …",
        "Ana Lind, Piet Maas, Olga Roe, Wen Li, Tomasz Kania, Ines Sol, Mia Berg, Jo Tan",
    ),
}


@pytest.mark.parametrize(("asked", "answer"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_what_may_be_in_any_language_is_no_finding(asked: str, answer: str) -> None:
    assert find_behaviours(session(None, answer, asked), ["wrong_language"]) == ()


def test_of_a_language_that_cannot_be_told_only_english_is_found() -> None:
    polish = "Rynek otwiera się o dziewiątej i w pierwszej godzinie ceny szybko się zmieniają, a potem spada obrót."
    assert find_behaviours(session("Polish", polish), ["wrong_language"]) == ()
    assert len(find_behaviours(session("Polish", TEXTS["english"]), ["wrong_language"])) == 1


def test_the_words_of_the_protocol_are_not_counted() -> None:
    said = conversation(
        "Instruction: Compare de Telefonos de la Aire.\nInput: None", "Solution: They are equal."
    )
    assert not find_behaviours(said, ["wrong_language"])
