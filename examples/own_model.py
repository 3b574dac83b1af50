"""A model of your own: any function from messages to a text."""

import bactrian as bt


async def parrot(messages: list[dict[str, str]]) -> str:
    """Answer an instruction with a solution, and a solution with an instruction."""
    if messages[-1]["content"].startswith("Instruction:"):
        return "Solution: Sow in rows a hand apart.\nNext request."
    return "Instruction: Name the next step.\nInput: None"


if __name__ == "__main__":
    session = bt.play(
        "Plant carrots", assistant="Gardener", user="Parent", model=parrot, max_messages=4, specify=False
    )
    print(session)
