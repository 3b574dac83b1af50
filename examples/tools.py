"""Tools: the assistant calls a Python function during its turn."""

import bactrian as bt


def price(tea: str) -> float:
    """Return the price of a tea in euros."""
    return {"sencha": 4.5}.get(tea, 3.0)


if __name__ == "__main__":
    script = {
        "user": ["Instruction: What does sencha cost?\nInput: None", "<CAMEL_TASK_DONE>"],
        "assistant": ['Call: price {"tea": "sencha"}', "Solution: It costs 4.5 euros.\nNext request."],
    }
    print(bt.play("Buy tea", model=bt.Scripted(script), specify=False, tools=[price]))
