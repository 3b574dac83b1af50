"""Progress and results of ``bactrian train``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bactrian.amounts import write_about_duration
from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.records.text import write_count
from bactrian.train.training_folder import TrainedModels

_EVERY = 10.0  # Seconds between two lines of progress that is not on a terminal


class TrainingView:
    """Shows the progress of a training on standard error: one line that changes on a terminal, else single lines."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = open_progress()
        self._live = self._console.is_terminal
        self._shown = 0.0
        self._open = False

    def show_event(self, event: Mapping[str, Any]) -> None:
        """Show what happens."""
        if self._quiet:
            return
        if event["event"] == "step":
            self._show_step(event)
        elif text := _describe_event(event):
            self._write(text)

    def _show_step(self, event: Mapping[str, Any]) -> None:
        now = time.monotonic()
        last = event["step"] >= event["of"]
        if not (self._live or last or now - self._shown >= _EVERY):
            return
        self._shown = now
        text = (
            f"{event['stage']}: step {event['step']:,}/{event['of']:,}, loss {event['loss']:.3f}, "
            f"{event.get('tokens_per_second', 0):,.0f} tokens/s, {event['peak_bytes'] / 1e9:.1f} GB, "
            f"{write_about_duration(event['left'])} left"
        )
        if self._live:
            self._console.file.write(f"\r\x1b[2K{text}")
            self._console.file.flush()
            self._open = True
        else:
            self._write(text)

    def _write(self, text: str) -> None:
        if self._open:
            self._console.file.write("\n")
            self._open = False
        self._console.print(text)


def show_forecast_of_training(forecast: Mapping[str, Any]) -> None:
    """Print a forecast: a line for each stage, and the sums."""
    output = open_output()
    for line in describe_forecast(forecast):
        output.print(line)


def describe_forecast(forecast: Mapping[str, Any]) -> list[str]:
    """Return the lines of a forecast."""
    how = "measured" if forecast["measured"] else "estimated from the number of weights"
    return [
        *(
            f"{stage['name']}: {write_count(stage['examples'], 'example')}, {stage['steps']:,} steps, "
            f"{stage['tokens']:,} tokens, {write_about_duration(stage['seconds'])}"
            for stage in forecast["stages"]
        ),
        (
            f"In all {forecast['tokens']:,} tokens in about {write_about_duration(forecast['seconds'])} "
            f"({forecast['tokens_per_second']:,.0f} tokens/s, {how}, on {forecast['machine']}), "
            f"{forecast['memory'] / 1e9:.1f} GB of memory, {forecast['disk'] / 1e9:.1f} GB of disk."
        ),
    ]


def show_trained(trained: TrainedModels) -> None:
    """Print the finished stages, and how to talk with the last."""
    output = open_output()
    for stage in trained.stages[1:]:
        loss = stage.manifest["loss"]
        held_out = (
            f", held out {loss['held_out_before']:.3f} → {loss['held_out']:.3f}"
            if loss["held_out"] is not None
            else ""
        )
        output.print(
            f"{stage.name}: loss {loss['first']:.3f} → {loss['train']:.3f}{held_out}, "
            f"{stage.manifest['tokens']:,} tokens in {write_about_duration(stage.manifest['seconds'])}  {stage.folder}"
        )
    last = trained.stages[-1]
    if last.gguf is not None:
        output.print(f"Talk with it: bactrian play {last.play_option} local:{last.gguf}")
    output.print(f"The curves: {Path(trained.folder) / 'curves.svg'}")


def _describe_event(event: Mapping[str, Any]) -> str | None:  # noqa: PLR0912  one line for each event
    match event["event"]:
        case "reading":
            return "Reading the data."
        case "opening":
            return f"Opening the base model: {event['model']}."
        case "encoding":
            return f"Writing {event['stage']} as tokens."
        case "encoded" if event["empty_replies"]:
            return f"{event['stage']}: empty replies, which are not learned: {event['empty_replies']:,}."
        case "template" if event["prompts"]:
            return f"The template is what `play` sends: {write_count(event['prompts'], 'prompt')} compared by token."
        case "template":
            return "The template is not compared with what `play` sends: llama.cpp is not installed."
        case "forecast":
            return "Forecast: " + "\n  ".join(describe_forecast(event))
        case "kept":
            return f"Stage {event['number']}, {event['name']}: finished before."
        case "stage":
            return f"Stage {event['number']} of {event['of']}: {event['name']}."
        case "began" if event["step"]:
            return f"Resuming at step {event['step']:,} of {event['of']:,}."
        case "evaluated":
            return f"{event['stage']}: step {event['step']:,}, loss on held-out conversations {event['loss']:.3f}."
        case "converting":
            return f"{event['stage']}: writing the model as GGUF."
        case "checked" if (check := event["check"]) is not None:
            return (
                f"{event['stage']}, {event['file']}: llama.cpp computes the same next token as transformers after "
                f"{check['same_choice']} of {check['prompts']} prompts (log-probabilities differ by "
                f"{check['mean_difference']:.3f} on average)."
            )
        case _:
            return None
