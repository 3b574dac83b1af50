"""An ending of your own: the function's name is its code everywhere."""

from collections.abc import Sequence

import bactrian as bt


@bt.ending
def too_polite(turns: Sequence[bt.Turn]) -> bool:
    """End the session when somebody says thank you."""
    return "thank you" in turns[-1].text.lower()


if __name__ == "__main__":
    script = ["Instruction: Name a tea.\nInput: None", "Solution: Sencha. Thank you!\nNext request."]
    session = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, endings=[too_polite])
    assert session.ending is not None
    print(session.ending.code)
