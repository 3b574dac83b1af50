"""A small data set, from a recipe to a file for fine-tuning."""

from pathlib import Path
from tempfile import TemporaryDirectory

import bactrian as bt

if __name__ == "__main__":
    script = bt.Scripted(
        {
            "task_specifier": ["Brew a green tea at 70 degrees."],
            "user": ["Instruction: Name the first step.\nInput: None", "<CAMEL_TASK_DONE>"],
            "assistant": ["Solution: Heat the water to 70 degrees.\nNext request."],
        }
    )
    recipe = bt.recipe(
        "ai-society", assistant_role=["Tea merchant", "Cook"], user_role=["Guest"], task=["Brew tea"]
    )
    with TemporaryDirectory() as folder:
        run = bt.generate(recipe, run=Path(folder) / "tea.db", model=script)
        run.export("messages", Path(folder) / "train.jsonl", only=["ending=task_done"])
        print((Path(folder) / "train.jsonl").read_text("utf-8"))
