from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

ASKED = "Instruction: Name two risk measures.\nInput: None"
ANSWERED = "Solution: Volatility and drawdown.\nNext request."

ASSISTANT_EXAMPLES = {
    "the user's marker": "Instruction: Explain volatility to me.\nInput: None",
    "after a solution": f"{ANSWERED}\n\nInstruction: Compute the drawdown.\nInput: prices.csv",
    "in bold": "**Instruction:** Compute the drawdown.\n**Input:** None",
    "in lower case": "instruction: compute the drawdown.\ninput: none",
    "as a heading": "## Instruction:\nCompute the drawdown.",
    "claims the other role": "As the Stock Trader, I need you to write the function for me.",
    "gives the work back": "Volatility. Now I want you to calculate it for the last ten days.",
    "assigns a task": "Solution: Volatility.\nYour next task is to write a function that computes it.",
    "hands over any kind of work": "Solution: Volatility. Now I want you to rank both and report back to me.",
    "takes turns": "Solution: Volatility. Now it's your turn: name another one and explain it.",
}
ASSISTANT_NEAR_MISSES = {
    "the word in prose": "Solution: Your instruction asks for two: volatility and drawdown.\nNext request.",
    "the marker in code": "Solution: Use a template:\n```\nInstruction: {task}\nInput: {data}\n```",
    "the marker in code behind a marker": "Solution: ```\nInstruction: {task}\nInput: {data}\n```\nNext request.",
    "a recipe of imperatives": (
        "Solution: Open the terminal. Run the script. Then plot the curve and save the figure."
    ),
    "a missing input": "Solution: No prices are given. Please provide the prices.\nNext request.",
    "waiting for the next request": "Solution: Volatility and drawdown. Please give me your next instruction.",
    "its own role": "As a Python Programmer, I suggest volatility and drawdown.\nNext request.",
}
USER_EXAMPLES = {
    "the assistant's marker": "Solution: Volatility is the standard deviation of returns.\nNext request.",
    "solves its own instruction": f"{ASKED}\n\n{ANSWERED}",
    "in lower case": "solution: volatility is the standard deviation of returns.",
    "offers help": "How can I help you today?",
    "waits for an instruction": "I am ready. Please give me your first instruction.",
    "asks for an order": "Please provide a new instruction.",
    "asks for an order in the form of one": "Instruction: Please provide your next instruction.\nInput: None",
    "asks for an order in Chinese": "好的，谢谢。请给我下一个指令。",
    "asks for an order in Japanese": "ありがとうございます。次の指示をお願いします。",
    "asks for an order in Korean": "감사합니다. 다음 지시를 부탁드립니다.",
    "asks for an order in German": "Vielen Dank. Geben Sie mir bitte die nächste Anweisung.",
    "asks for an order in Hindi": "धन्यवाद। अगला निर्देश दीजिए।",
    "asks what is next": "Thank you. What is the next task?",
    "accepts work": "Sure, I can help you with that! What would you like me to do first?",
    "delivers": "Sure! Here is the function you asked for:\n```python\ndef vol(x): ...\n```",
}
USER_NEAR_MISSES = {
    "instructions for a reader": "Instruction: Give me the instructions for the reader.\nInput: None",
    "words to be checked": "Instruction: Translate the line.\nInput: Please provide a new instruction.",
    "an announcement of an instruction": "Please wait a moment while I prepare the next instruction.",
    "an instruction": ASKED,
    "an instruction with a solution as its input": "Instruction: Check this.\nInput: Solution: x = 4",
    "thanks before an instruction": "Great, thank you. Instruction: Now plot it.\nInput: None",
    "a question": "Which of the two is easier to compute?",
    "the word in prose": "That solution is good.\nInstruction: Make the solution faster.\nInput: None",
    "done": "<CAMEL_TASK_DONE>",
}


@pytest.mark.parametrize("answer", ASSISTANT_EXAMPLES.values(), ids=ASSISTANT_EXAMPLES)
def test_an_assistant_that_instructs_flips(answer: str) -> None:
    found = find_behaviours(conversation(ASKED, answer), ["role_flip"])
    assert [finding.turn for finding in found] == [2]
    assert found[0].quote.lower() in answer.lower()


@pytest.mark.parametrize("answer", ASSISTANT_NEAR_MISSES.values(), ids=ASSISTANT_NEAR_MISSES)
def test_an_assistant_that_solves_does_not_flip(answer: str) -> None:
    assert find_behaviours(conversation(ASKED, answer), ["role_flip"]) == ()


@pytest.mark.parametrize("text", USER_EXAMPLES.values(), ids=USER_EXAMPLES)
def test_a_user_that_solves_flips(text: str) -> None:
    found = find_behaviours(conversation(ASKED, ANSWERED, text), ["role_flip"])
    assert [finding.turn for finding in found] == [3]


@pytest.mark.parametrize("text", USER_NEAR_MISSES.values(), ids=USER_NEAR_MISSES)
def test_a_user_that_instructs_does_not_flip(text: str) -> None:
    assert find_behaviours(conversation(ASKED, ANSWERED, text), ["role_flip"]) == ()
