"""A behaviour of your own, counted in the report beside the built-in ones.

Reports need the optional part `analysis`: pip install 'bactrian[analysis]'.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import bactrian as bt


@bt.behaviour("The assistant apologises.")
def apology(turn: bt.Turn) -> bool:
    """Look at one turn."""
    return turn.speaker == "assistant" and "sorry" in turn.text.lower()


if __name__ == "__main__":
    script = [
        "Instruction: Name one.\nInput: None",
        "Solution: Sorry, sencha.\nNext request.",
        "<CAMEL_TASK_DONE>",
    ]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "tea.db"
        bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run=run)
        bt.open_run(run).analyze(behaviours=[apology]).show()
