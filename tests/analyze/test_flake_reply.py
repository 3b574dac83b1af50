from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

EXAMPLES = {
    "a choice put off": (
        "Choose a color.\nInput: red, blue",
        "Solution: I will choose a color.\nNext request.",
    ),
    "a bare promise": ("Write the scraper.", "I will write the scraper."),
    "a promise between the protocol's words": (
        "Write the scraper.",
        "Solution: I will write the scraper for you right away.\nNext request.",
    ),
    "lower-case markers": ("Write the scraper.", "solution: i'll write the scraper.\n\nnext request."),
    "markdown around it": (
        "Design the logo.",
        "**Solution:** I'll start designing the logo now. **Next request.**",
    ),
    "a typographic apostrophe": ("Design the logo.", "Sure, I’ll get started on the logo!"),
    "several promises": (
        "Analyze the survey.",
        (
            "Sure! I will analyze the survey. First, I will load the "
            "data. Then I'll compute the averages and report back."
        ),
    ),
    "a promise about time": (
        "Proofread chapter 3.",
        "Okay, please give me a few minutes while I proofread it.",
    ),
    "readiness": ("Explain option pricing.", "Of course. I'd be glad to help you with option pricing."),
    "let me": ("Find a venue.", "Let me look into venues and get back to you."),
    "accepted": ("Add tests.", "Understood. I'll add the tests next."),
    "a promise with courtesies around it": (
        "Draft the press release.",
        (
            "Thank you for the instruction! I will draft the press release and make sure it is engaging. "
            "Let me know if you have any other requests."
        ),
    ),
    "the role first": (
        "Identify the audience.",
        "As a social media manager, I will conduct research to identify the audience. I will use several tools.",
    ),
    "under way": ("Write the report.", "The report is being prepared and will be delivered soon."),
    "the letter itself only promised": ("Write a letter to Tom.", "I will write a letter to Tom."),
    "the marker of agents that have tools": (
        "Call the supplier.",
        "Solution&Action:\nI will call the supplier.\n\nNext request.",
    ),
    "a long promise": (
        "Compare the three suppliers of the bakery and recommend the best of them.",
        (
            "Solution: I will compare the three suppliers of the bakery and recommend the best of them. First, I will "
            "collect their price lists, their terms of delivery and the experience of the bakers with their flour. "
            "Then I will set up a table in which prices, quality and reliability stand side by side. From "
            "this table, I will weigh advantages and disadvantages carefully and recommend the supplier that suits the "
            "bakery. I will pay special attention to the deliveries on Sundays.\nNext request."
        ),
    ),
    "a long description of what is promised": (
        "Develop a training plan for the new drivers of the bus company.",
        (
            "Solution: I will develop a training plan for the new drivers of the bus company. The training plan will "
            "include lessons on the road and in the classroom, and it will take the experience of each driver into "
            "account. It will be presented in a clear format, with goals for each week. The training plan will also "
            "contain a process for feedback from the drivers, so that it can change. Finally, I will make sure that "
            "it meets the standards of the bus company.\nNext request."
        ),
    ),
    "Italian": ("Scrivi una poesia.", "Certo, scriverò subito una poesia sulla luna."),
    "Chinese": ("写一封信。", "好的，我会马上写这封信。"),
}
NEAR_MISSES = {
    "a choice": (
        "Choose a color for the logo.\nInput: red, blue",
        "Solution: I will choose blue.\nNext request.",
    ),
    "asking for material": (
        "Move my flight to May 24, and make it business class.",
        "To help with that, I'll need to gather some information: your user ID and your reservation ID.",
    ),
    "a resolution": ("Make a New Year's resolution.", "I will read one book a month."),
    "a slogan": ("Write a slogan.", "We'll fix it."),
    "announced and shown": ("Show the code.", "I will now show the code:\n```python\nprint(1)\n```"),
    "a translated promise": ("Translate into English: Ich rufe dich an.", "I will call you."),
    "a plan that was asked for": (
        "Describe how you will promote the app.",
        "Solution: I will post twice a week on Instagram and I will offer the first month for free.\nNext request.",
    ),
    "a letter in the first person": (
        "Write the reply to the guest.",
        "Solution: Dear Mr Roe, we will refund your deposit on Monday. We will also send a voucher.\nNext request.",
    ),
    "an honest refusal": (
        "Visit the site.",
        "Solution: I cannot visit places, but I can list questions to ask there.",
    ),
    "a short answer": ("Which port?", "Solution: 8080.\nNext request."),
    "a present-tense answer": ("Pick a loss.", "Solution: I choose the Huber loss.\nNext request."),
    "a list after the announcement": (
        "Plan the week.",
        "Sure, I will plan the week:\n- Monday: scales\n- Tuesday: arpeggios\n- Wednesday: rest",
    ),
    "poems that were promised and written": (
        "Write two lines on rain.",
        "I will write two lines on rain.\nThe gutter hums a silver tune,\nand puddles hold a broken moon.",
    ),
    "an announcement and long work": (
        "Compare oak and pine for a garden table.",
        (
            "Solution: I will compare oak and pine for a garden table. Oak is hard, heavy and full of tannin, so it "
            "lasts twenty winters outdoors without paint and turns silver. Pine costs a third, weighs half, is easy to "
            "saw, but rots after five years unless somebody oils it every spring. Screws of plain steel stain the "
            "harder wood black. A family that moves often takes the cheaper boards; others buy the other. I will "
            "add that larch lies between both.\nNext request."
        ),
    ),
    "the third person's future": (
        "Explain what happens at closing.",
        "Solution: The notary will read the deed aloud and the buyer will sign it.\nNext request.",
    ),
}


@pytest.mark.parametrize(("asked", "answer"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_promise_instead_of_work_is_a_flake(asked: str, answer: str) -> None:
    found = find_behaviours(conversation(f"Instruction: {asked}\nInput: None", answer), ["flake_reply"])
    assert [finding.turn for finding in found] == [2]
    assert found[0].quote


@pytest.mark.parametrize(("asked", "answer"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_work_is_no_flake_even_when_it_speaks_of_the_future(asked: str, answer: str) -> None:
    assert find_behaviours(conversation(f"Instruction: {asked}\nInput: None", answer), ["flake_reply"]) == ()


CALL = '<tool_call>{"name": "get_order", "arguments": {"order_id": "12"}}</tool_call>'


@pytest.mark.parametrize(
    ("answer", "is_flake"),
    [
        (f"Of course! Let me look up your order. Please wait a moment. {CALL}", True),
        (f"Thank you, Ada. I'll check your order now. {CALL}", True),
        ("You're welcome! I'm retrieving your order now. Please hold on a moment.", True),
        (f"Your order 7781 is on its way and arrives on Monday. {CALL}", False),
        ("Please wait a moment. The lamp costs 40 euros, and the blue one is cheaper.", False),
    ],
)
def test_a_clerk_that_only_announces_a_look_up_flakes(answer: str, is_flake: bool) -> None:
    session = conversation("Hello, where is my order?", "What is its number?", "It is order 12.", answer)
    found = find_behaviours(session, ["flake_reply"])
    assert [finding.turn for finding in found] == ([4] if is_flake else [])


def test_courtesy_after_the_done_token_is_no_flake() -> None:
    said = conversation(
        "Name a tea.", "Solution: Sencha.", "CAMEL_TASK_DONE", "Done! Let me know if you need me."
    )
    assert not find_behaviours(said, ["flake_reply"])
