"""The code in a reply, by the rules of docs/evaluate.md."""

from __future__ import annotations

import pytest

from bactrian.evaluate.code_judge import Judge
from bactrian.evaluate.problems import Problem, extract_module
from tests.helpers.sandbox import needs_sandbox

PROMPT = 'from typing import List\n\n\ndef total(numbers: List[int]) -> int:\n    """Add numbers."""\n'
PROBLEM = Problem("t", PROMPT, ("total",), "assert total([1, 2]) == 3\nassert total([]) == 0")
TASK = Problem("m", "Write total.", ("total",), PROBLEM.checks, completes=False)

FUNCTION = "def total(numbers: List[int]) -> int:\n    return sum(numbers)\n"
REPLIES = {
    "fenced": f"Here it is:\n\n```python\n{FUNCTION}```\n\nIt adds the numbers.",
    "fenced without a language": f"```\n{FUNCTION}```",
    "fenced by tildes": f"~~~py\n{FUNCTION}~~~",
    "never closed": f"```python\n{FUNCTION}",
    "an example first": f"```python\nprint(total([1]))\n```\nThe function:\n```python\n{FUNCTION}```",
    "another language first": f"```bash\npip install x\n```\n```python\n{FUNCTION}```",
    "the output after": f"```python\n{FUNCTION}```\n```\n3\n```",
    "indented fence": "1. Code:\n    ```python\n    def total(numbers):\n        return sum(numbers)\n    ```",
    "without fences": FUNCTION,
    "without fences, in prose": f"Sure! Here is the function.\n\n{FUNCTION}\nThis function adds the numbers.",
    "the body alone": "    return sum(numbers)\n",
    "the body alone, not indented": "return sum(numbers)",
    "the body in a fence": "```python\n    return sum(numbers)\n```",
    "the body, and more functions": "    return sum(numbers)\n\n\ndef other():\n    return 1 /",
    "a thought before": f"<think>def total(x): return 0</think>\n```python\n{FUNCTION}```",
    "Windows line ends": f"```python\n{FUNCTION}```".replace("\n", "\r\n"),
}


@needs_sandbox
@pytest.mark.slow
def test_the_code_of_a_reply_is_found() -> None:
    whole = "def total(numbers):\n    return sum(numbers)\n"
    with Judge() as judge:
        for name, reply in REPLIES.items():
            assert judge.judge(PROBLEM, extract_module(PROBLEM, reply)).passed, name
        for reply in (f"```python\n{whole}```", whole, f"Well:\n\n{whole}\nDone."):
            assert judge.judge(TASK, extract_module(TASK, reply)).passed, reply


@pytest.mark.parametrize("reply", ["", "   \n", "<think>def total(x): return 3</think>"])
def test_a_reply_without_code_is_empty(reply: str) -> None:
    assert Judge().judge(PROBLEM, extract_module(PROBLEM, reply)).kind == "empty"


@pytest.mark.parametrize(
    "piece", ["```\n", "def total(", "\n    ", "class ", "(", "\\", "'''", "~~~python\n"]
)
def test_a_reply_of_one_piece_again_and_again_is_read(piece: str) -> None:
    assert isinstance(extract_module(PROBLEM, piece * (60_000 // len(piece))), str)
