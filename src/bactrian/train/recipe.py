"""The schema of a training recipe."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal, Self, cast

from pydantic import ConfigDict, Field, field_validator, model_validator

from bactrian.recipes.axis import Filled, Part, make_fault
from bactrian.records.turn import Speaker

BUILT_IN_BASE = "built-in"
"""The base model that comes with the program."""
NEW = "made from nothing"
"""Name of a base model that a recipe made."""
Method = Literal["full", "lora", "qlora"]
Count = Annotated[int, Field(gt=0, strict=True)]
Share = Annotated[float, Field(ge=0, lt=1)]
FilePath = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
"""A path, or the name of a model: not blank, and without NUL."""
_MOST_WEIGHTS = 1_000_000_000
"""Of a model made from nothing: 16 GB of memory, and more than the data of any recipe can teach it from nothing."""
_STAGE_NAME = r"^[a-z0-9][a-z0-9-]{0,63}$"


class NewModel(Part):
    """A language model made from nothing: a small Llama, with a tokenizer trained on the recipe's data."""

    width: Count = 128
    layers: Count = 2
    heads: Count = 4
    vocabulary: Annotated[int, Field(ge=300, le=65_536, strict=True)] = 690
    window: Annotated[int, Field(ge=1024, le=131_072, strict=True)] = 2048

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.heads or self.width // self.heads % 2:
            raise make_fault("width must be an even multiple of heads", "width")
        if self.layers * 13 * self.width**2 + self.vocabulary * self.width > _MOST_WEIGHTS:
            raise make_fault("a model made from nothing has at most a billion weights", "width")
        return self


class Base(Part):
    """The model to begin with: a name or a path, or one made from nothing."""

    model: FilePath | None = Field(
        default=None, description="built-in, a .gguf file, a folder of transformers, or a name of the Hub."
    )
    new: NewModel | None = None
    revision: Filled | None = Field(default=None, description="Commit of the model on the Hub.")
    license: Filled | None = Field(default=None, description="Its licence, where the model does not say.")
    template: FilePath | None = Field(
        default=None, description="Chat template instead of its own: chatml, vicuna, or a file in Jinja."
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.model is None) == (self.new is None):
            raise make_fault("give either a model or [base.new]", "model")
        return self


class Lora(Part):
    """Low-rank adapters (Hu et al. 2021), merged into the model at the end of a stage."""

    rank: Annotated[int, Field(gt=0, le=4096, strict=True)] = 16
    alpha: Count = 32
    dropout: Share = 0.0
    targets: Filled | tuple[Filled, ...] = "all-linear"


class Training(Part):
    """How a stage is trained. The defaults are Table 5 of the paper, except for the method."""

    method: Method = "lora"
    epochs: Annotated[float, Field(gt=0, le=10_000)] = 3.0
    steps: Annotated[int, Field(gt=0, le=1_000_000_000, strict=True)] | None = Field(
        default=None, description="Steps of each stage, instead of epochs."
    )
    learning_rate: Annotated[float, Field(gt=0, lt=1)] = 2e-5
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: Share = Field(default=0.04, description="Share of the steps that the learning rate grows.")
    weight_decay: Share = 0.0
    batch: Count = Field(default=128, description="Examples of a step, over all devices.")
    per_device: Count = Field(default=4, description="Examples that a device processes at once.")
    max_length: Annotated[int, Field(ge=16, le=10_000_000, strict=True)] = Field(
        default=2048, description="Longest example, in tokens; longer conversations are split at pairs."
    )
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    tf32: bool = True
    checkpointing: bool = Field(default=False, description="Compute activations twice to save memory.")
    lora: Lora = Lora()
    held_out: Share = Field(default=0.05, description="Share of the pairs of roles kept for evaluation.")
    evaluations: Annotated[int, Field(ge=0, strict=True)] = Field(
        default=4, description="Evaluations in the course of a stage."
    )
    save_minutes: Annotated[float, Field(gt=0)] = Field(default=5.0, description="Time between checkpoints.")
    lost_at_most: Share = Field(
        default=0.01, description="Share of the pairs that may be too long for max_length."
    )
    seed: Annotated[int, Field(ge=0, lt=2**32, strict=True)] = 0
    devices: Count = Field(default=1, description="GPUs, of one machine.")
    accelerate: FilePath | None = Field(
        default=None, description="Configuration of accelerate for several devices: fsdp, or a file."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.batch % (min(self.per_device, self.batch) * self.devices):
            raise make_fault("batch must be a multiple of per_device times devices", "batch")
        if self.devices > 1 and self.accelerate is None:
            raise make_fault('several devices need a configuration: accelerate = "fsdp"', "devices")
        if self.devices > 1 and self.method != "full":
            raise make_fault('several devices train in full: method = "full"', "method")
        return self

    @property
    def held_at_once(self) -> int:
        """Examples that a device processes at once; never more than a step has."""
        return min(self.per_device, self.batch)

    @property
    def accumulation(self) -> int:
        """Batches whose gradients are added up to one step."""
        return self.batch // (self.held_at_once * self.devices)

    def count_steps_of_epoch(self, examples: int) -> int:
        """Return the steps of one pass over this number of examples; the last step may have fewer than ``batch``."""
        batches = ceil(examples / (self.held_at_once * self.devices))
        return max(1, ceil(batches / self.accumulation))

    def count_steps(self, examples: int) -> int:
        """Return the steps of a stage with this number of examples."""
        if self.steps is not None:
            return self.steps
        return max(1, ceil(self.count_steps_of_epoch(examples) * self.epochs))

    def count_seen(self, examples: int, tokens: int) -> int:
        """Return the tokens that a stage trains on: those of its examples, each as often as it is seen."""
        return round(tokens * self.count_steps(examples) / self.count_steps_of_epoch(examples))


class DataSource(Part):
    """Conversations of a stage: a run, or JSON lines with ``messages``."""

    path: FilePath
    side: Speaker = Field(default="assistant", description="The agent whose messages are learned; of runs.")
    only: tuple[Filled, ...] = Field(default=(), description="Codes of endings; of runs.")
    drop: tuple[Filled, ...] = Field(
        default=(), description="Codes of endings or behaviours to leave out; of runs."
    )
    min_rounds: Annotated[int, Field(ge=0, strict=True)] = 0
    share: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="Share of the conversations.")
    license: Filled | None = Field(default=None, description="Licence of the data, for the model card.")


class Stage(Part):
    """A stage of a training, with its own data."""

    name: Annotated[str, Field(pattern=_STAGE_NAME)]
    data: tuple[DataSource, ...] = ()
    side: Speaker | None = Field(default=None, description="Of all its data.")

    @field_validator("data", mode="before")
    @classmethod
    def _reads_paths(cls, given: object) -> object:
        sources = cast("list[object]", given if isinstance(given, list | tuple) else [given])
        return [{"path": one} if isinstance(one, str) else one for one in sources]


class TrainRecipe(Part):
    """A training in stages."""

    model_config = ConfigDict(populate_by_name=True)

    name: Annotated[str, Field(pattern=_STAGE_NAME)]
    description: str = ""
    origin: Literal["union", "checkpoint"] = Field(
        default="union",
        alias="from",
        description="union: each stage trains the base on all data so far. checkpoint: the model of the stage "
        "before, on its own data.",
    )
    base: Base
    training: Training = Training()
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    gguf: tuple[Literal["f16", "q8_0"], ...] = Field(
        default=("f16",), description="Forms of the files for play; f16 is always written."
    )
    held_out_files: tuple[FilePath, ...] = Field(
        default=(), description="Questions that no stage may be trained on: JSON lines, or one text a line."
    )

    @model_validator(mode="after")
    def _names_each_stage_once(self) -> Self:
        names = [stage.name for stage in self.stages]
        for number, name in enumerate(names):
            if name in names[:number] or name == "base":
                raise make_fault("this name is taken", "stages", number, "name")
        return self
