"""``PYTHON benchmarks/inspect_log.py CONVERSATIONS.jsonl FOLDER``: writes conversations as one log of inspect.

PYTHON is that of an environment with ``inspect-ai``, which bactrian does not need; so nothing of bactrian is imported.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

WHEN = "2026-01-01T00:00:00+00:00"


def main() -> None:
    """Write the log."""
    log: Any = import_module("inspect_ai.log")
    model: Any = import_module("inspect_ai.model")
    kinds = {"user": model.ChatMessageUser, "assistant": model.ChatMessageAssistant}
    samples: list[Any] = []
    for line in Path(sys.argv[1]).read_text("utf-8").splitlines():
        conversation = json.loads(line)
        said = [kinds[speaker](content=text) for speaker, text in conversation["messages"]]
        output = model.ModelOutput.from_content("m", said[-1].content)
        samples.append(
            log.EvalSample(
                id=conversation["id"],
                epoch=1,
                input=conversation["task"],
                target="",
                messages=said,
                output=output,
            )
        )
    count = len(samples)
    ids = [sample.id for sample in samples]
    dataset = log.EvalDataset(name="society", samples=count, sample_ids=ids)
    spec = log.EvalSpec(
        created=WHEN, task="society", dataset=dataset, model="openai/m", config=log.EvalConfig()
    )
    made = log.EvalLog(
        status="success",
        eval=spec,
        plan=log.EvalPlan(),
        results=log.EvalResults(total_samples=count, completed_samples=count),
        stats=log.EvalStats(started_at=WHEN, completed_at=WHEN),
        samples=samples,
    )
    log.write_eval_log(made, str(Path(sys.argv[2]) / "society.eval"))


if __name__ == "__main__":
    main()
