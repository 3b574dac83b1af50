"""What a training will take: tokens, hours, memory and disk, from its data and a probe of three steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bactrian.train.recipe import TrainRecipe

_FORWARD = 1 / 3
"""Cost of an evaluated token, relative to a trained one: forward without backward."""
_FLOPS_A_TOKEN = 6
"""Operations per weight and trained token (Kaplan et al. 2020, section 2.1)."""
_A100 = 312e12 * 0.4
"""Operations a second of an A100 in bf16, at the 40 % that trainings commonly reach."""
_BYTES_FULL = 16
"""Per weight: 32-bit weight, gradient and the two moments of AdamW."""


@dataclass(frozen=True, slots=True)
class StageForecast:
    """The amount of work of a stage."""

    name: str
    examples: int
    steps: int
    tokens: int
    """Tokens that are trained on, each as often as it is seen."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainingForecast:
    """The amount of work of a training."""

    stages: tuple[StageForecast, ...]
    tokens: int
    seconds: float
    tokens_per_second: float
    memory: int
    """Bytes, per device."""
    disk: int
    """Bytes at the end, with the largest checkpoint."""
    measured: bool
    """True if a probe measured speed and memory; False if they are estimated from the number of weights."""
    machine: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def forecast_stages(recipe: TrainRecipe, prepared: Mapping[str, Any]) -> TrainingForecast:
    """Return the forecast from what a worker prepared: counts of each stage, weights, and the probe."""
    training = recipe.training
    probe: Mapping[str, Any] | None = prepared["probe"]
    # Weights on disk have 16 bits; a model made from nothing is too small to matter.
    parameters = int(probe["parameters"]) if probe else prepared["weights"] // 2
    rate = (
        float(probe["tokens_per_second"])
        if probe
        else training.devices * _A100 / (_FLOPS_A_TOKEN * max(1, parameters))
    )
    counts: Sequence[Mapping[str, Any]] = prepared["stages"]
    start = float(probe.get("start_seconds", 0.0)) if probe else 0.0
    evaluated = sum(one["held-out"]["tokens"] for one in counts)
    stages: list[StageForecast] = []
    for number, stage in enumerate(recipe.stages):
        own = counts[: number + 1] if recipe.origin == "union" else counts[number : number + 1]
        examples = sum(one["train"]["examples"] for one in own)
        tokens = sum(one["train"]["tokens"] for one in own)
        steps, seen = training.count_steps(examples), training.count_seen(examples, tokens)
        evaluations = training.evaluations + 1 if evaluated and training.evaluations else 0
        seconds = start + (seen + evaluations * evaluated * _FORWARD) / rate
        stages.append(StageForecast(stage.name, examples, steps, seen, seconds))
    weights: int = prepared["weights"]
    checkpoint = weights * 6 if training.method == "full" else weights
    memory = int(probe["peak_bytes"]) if probe else parameters * _BYTES_FULL // training.devices
    if probe and probe.get("device") == "cpu":
        memory += weights  # the end of a stage writes the model from a second copy
    return TrainingForecast(
        stages=tuple(stages),
        tokens=sum(stage.tokens for stage in stages),
        seconds=sum(stage.seconds for stage in stages),
        tokens_per_second=rate,
        memory=memory,
        disk=2 * weights * len(stages) + checkpoint,
        measured=probe is not None,
        machine=str(probe["machine"]) if probe else f"{training.devices} × A100",
    )
