"""The model card of a stage: its data, training, results and licences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bactrian.language.escape import to_code_span, to_json, to_markdown
from bactrian.train.folder import find_play_option
from bactrian.train.recipe import NEW, TrainRecipe

_NOT_STATED = "not stated"


def write_card(path: Path, manifest: Mapping[str, Any], recipe: TrainRecipe) -> None:
    """Write the card of a stage from its manifest. Every number in it was measured."""
    path.write_text(_write(manifest, recipe), "utf-8")


def _write(manifest: Mapping[str, Any], recipe: TrainRecipe) -> str:
    base = manifest["base"]
    license_name = base["license"] or _NOT_STATED
    title = f"{recipe.name}: stage {manifest['number']}, {manifest['name']}"
    parts = [
        "---",
        f"license: {to_json(base['license'] or 'other')}",
        *([f"base_model: {to_json(base['name'])}"] if base["name"] != NEW else []),
        "library_name: transformers",
        "tags: [bactrian, role-play, sft]",
        "---",
        f"# {to_markdown(title)}",
        "",
        to_markdown(recipe.description or "A model trained on role-played conversations."),
        "No human reviewed the conversations, and the model's answers can be wrong.",
        "",
        "## Terms",
        "",
        (
            "- Base model: none; the weights began at random."
            if base["name"] == NEW
            else f"- Base model: {to_code_span(base['name'])}, licence: {to_markdown(license_name)}. "
            "The trained model inherits it."
        ),
        *_list_data_terms(manifest),
        "- Conversations written by a model come under that model's terms too; the runs name the models.",
        "",
        "## Result",
        "",
        *_list_result(manifest),
        "",
        "![The loss by step](curves.svg)",
        "",
        "## Data",
        "",
        *_list_data(manifest),
        "",
        "## Training",
        "",
        *_list_training(manifest),
        "",
        "## Use",
        "",
        f"`bactrian play {find_play_option(manifest)} local:{manifest['gguf']}` in this folder."
        if manifest.get("gguf")
        else "The folder `model/` is read by transformers, and by servers that `play` talks to. "
        "Of many language models, llama.cpp's `convert_hf_to_gguf.py` makes the file that `play` reads itself.",
        "",
    ]
    return "\n".join(parts)


def _list_data_terms(manifest: Mapping[str, Any]) -> list[str]:
    sources = [source for stage in manifest["data"] for source in stage["sources"]]
    return [
        f"- Data {to_code_span(Path(source['path']).name)}: "
        f"licence {to_markdown(source.get('license') or _NOT_STATED)}."
        for source in sources
    ]


def _list_result(manifest: Mapping[str, Any]) -> list[str]:
    loss = manifest["loss"]
    lines = [
        f"- Loss on training data: {_show(loss['first'])} in the first step, {_show(loss['train'])} in the last."
    ]
    if loss["held_out"] is not None:
        lines.append(
            f"- Loss on held-out pairs of roles: {_show(loss['held_out_before'])} before, "
            f"{_show(loss['held_out'])} after."
        )
    else:
        lines.append("- No conversations were held out, so nothing says how the model does on others.")
    if check := manifest.get("gguf_check"):
        lines.append(
            f"- The GGUF file, computed by llama.cpp against transformers: the same next token after "
            f"{check['same_choice']} of {check['prompts']} prompts; log-probabilities differ by "
            f"{check['mean_difference']:.3f} on average, {check['largest_difference']:.3f} at most."
        )
    return lines


def _list_data(manifest: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for stage in manifest["data"]:
        counts = stage["counts"]["train"]
        lines.append(
            f"- {stage['stage']}: {counts['conversations']:,} conversations as {counts['examples']:,} examples, "
            f"{counts['tokens']:,} tokens, of which {counts['learned_tokens']:,} are learned; "
            f"{stage['held_out']['conversations']:,} conversations held out."
            + (
                f" Empty replies that are not learned: {empty:,}."
                if (empty := counts.get("empty_replies"))
                else ""
            )
        )
    return lines


def _list_training(manifest: Mapping[str, Any]) -> list[str]:
    training = manifest["training"]
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    begun = "the base model, on all data so far" if manifest["from"] == "union" else "the stage before"
    return [
        (
            f"- From {begun}; {training['method']}, {manifest['steps']:,} steps of {training['batch']} examples, "
            f"learning rate {training['learning_rate']:g}, {training['schedule']}, warm-up {training['warmup']:g}, "
            f"at most {training['max_length']:,} tokens, seed {manifest['seed']}."
        ),
        (
            f"- {manifest['tokens']:,} tokens in {manifest['seconds']:,.0f} s "
            f"({manifest['cpu_seconds']:,.0f} s of processor time), "
            f"{manifest['peak_bytes'] / 1e9:.1f} GB, on {manifest['machine']}."
        ),
        *_list_processes(manifest["processes"]),
        f"- bactrian {manifest['bactrian']}, {versions}.",
    ]


def _list_processes(count: int) -> list[str]:
    if count < 2:
        return []
    return [
        f"- It was resumed: the seconds are those of {count} processes; a killed one counts up to its last step."
    ]


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
