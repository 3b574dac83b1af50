"""Translations of the protocol's markers, for models that translate ``Instruction:`` too.

Covers the ten languages of CAMEL's translations. The markers of a session's own language count in addition to the
English ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Marker = Literal["Instruction", "Input", "Solution", "Next request"]

_WORDS: Mapping[str, Mapping[Marker, str]] = {
    "arabic": {
        "Instruction": "التعليمات|تعليمات|التعليمة|تعليمة",
        "Input": "المدخلات|المدخل|مدخلات|الإدخال|إدخال",
        "Solution": "الحل|حل",
        "Next request": "الطلب التالي",
    },
    "german": {
        "Instruction": "Anweisung|Instruktion",
        "Input": "Eingabe",
        "Solution": "Lösung",
        "Next request": "Nächste Anfrage|Nächste Anweisung|Nächster Auftrag",
    },
    "spanish": {
        "Instruction": "Instrucción|Instruccion",
        "Input": "Entrada",
        "Solution": "Solución|Solucion",
        "Next request": "Siguiente solicitud|Próxima solicitud|Siguiente petición",
    },
    "french": {
        "Instruction": "Instruction|Consigne",
        "Input": "Entrée|Saisie",
        "Solution": "Solution",
        "Next request": "Prochaine demande|Demande suivante|Prochaine requête",
    },
    "hindi": {
        "Instruction": "निर्देश",
        "Input": "इनपुट",
        "Solution": "समाधान",
        "Next request": "अगला अनुरोध",
    },
    "italian": {
        "Instruction": "Istruzione",
        "Input": "Ingresso",
        "Solution": "Soluzione",
        "Next request": "Prossima richiesta|Richiesta successiva",
    },
    "japanese": {
        "Instruction": "指示|指令",
        "Input": "入力",
        "Solution": "解決策|解決方法|解答|ソリューション",
        "Next request": "次のリクエスト|次の要求|次の依頼",
    },
    "korean": {
        "Instruction": "지시사항|지시|지침",
        "Input": "입력",
        "Solution": "해결책|해결 방안|해답|솔루션",
        "Next request": "다음 요청",
    },
    "russian": {
        "Instruction": "Инструкция",
        "Input": "Ввод|Входные данные",
        "Solution": "Решение",
        "Next request": "Следующий запрос",
    },
    "chinese": {
        "Instruction": "指令|指示",
        "Input": "输入|輸入",
        "Solution": "解决方案|解決方案|解决办法|解答",
        "Next request": "下一个请求|下一個請求|下一个要求",
    },
}
MARKERS: Mapping[str, Mapping[Marker, str]] = MappingProxyType(dict(_WORDS))
"""Alternatives of a regular expression, by language name from :func:`~bactrian.language.identify.identify_language`."""
NOTHING = (
    "none|n/a|nothing|لا يوجد|لا شيء|keine?|ninguno|ninguna|aucune?"
    "|कोई नहीं|nessuno|nessuna|なし|無し|없음|нет|无|無"
)
"""Words for "no input" in all of the languages, as alternatives of a regular expression."""
