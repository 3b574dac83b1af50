"""A training recipe: its schema, and how it is read, changed by settings and checked; chat templates by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import ConfigDict, Field, field_validator, model_validator

from bactrian.errors import InputError, RecipeError
from bactrian.files.toml import FileKind, KeyPath, TomlSource, check_table, suggest_name
from bactrian.recipes.load import parse_value
from bactrian.recipes.schema import Filled, Part, make_fault
from bactrian.records.turn import Speaker

BUILT_IN_BASE = "built-in"  # The base model that comes with the program
NEW = "made from nothing"  # Name of a base model that a recipe made
Method = Literal["full", "lora", "qlora"]
Count = Annotated[int, Field(gt=0, strict=True)]
Share = Annotated[float, Field(ge=0, lt=1)]
# A path, or the name of a model: not blank, and without NUL.
FilePath = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
# Of a model made from nothing: 16 GB of memory, and more weights than the data of any recipe can teach.
_MOST_WEIGHTS = 1_000_000_000
_STAGE_NAME = r"^[a-z0-9][a-z0-9-]{0,63}$"


class NewModel(Part):
    """A language model made from nothing, with a tokenizer trained on the recipe's data."""

    kind: Literal["llama", "t5"] = "llama"
    """llama: a language model. t5: a sequence-to-sequence model."""
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
    """The model to begin with: a name or a path, or a model made from nothing."""

    model: FilePath | None = None
    """built-in, a .gguf file, a folder of transformers, or a name of the Hub."""
    new: NewModel | None = None
    revision: Filled | None = None
    """Commit of the model on the Hub."""
    license: Filled | None = None
    """Its licence, where the model does not say."""
    template: FilePath | None = None
    """Chat template instead of its own: chatml, vicuna, or a file in Jinja."""

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
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
    steps: Annotated[int, Field(gt=0, le=1000000000, strict=True)] | None = None
    """Steps of each stage, instead of epochs."""
    learning_rate: Annotated[float, Field(gt=0, lt=1)] = 2e-5
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: Share = 0.04
    """Share of the steps that the learning rate grows."""
    weight_decay: Share = 0.0
    batch: Count = 128
    """Examples of a step, over all devices."""
    per_device: Count = 4
    """Examples that a device processes at once."""
    max_length: Annotated[int, Field(ge=16, le=10_000_000, strict=True)] = Field(
        default=2048, description="Longest example, in tokens; longer conversations are split at pairs."
    )
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    tf32: bool = True
    checkpointing: bool = False
    """Compute activations twice to save memory."""
    lora: Lora = Lora()
    held_out: Share = 0.05
    """Share of the pairs of roles kept for evaluation."""
    evaluations: Annotated[int, Field(ge=0, strict=True)] = Field(
        default=4, description="Evaluations in the course of a stage."
    )
    save_minutes: Annotated[float, Field(gt=0)] = Field(default=5.0, description="Time between checkpoints.")
    lost_at_most: Share = 0.01
    """Share of the pairs that may be too long for max_length."""
    seed: Annotated[int, Field(ge=0, lt=2**32, strict=True)] = 0
    devices: Count = 1
    """GPUs, of one machine."""
    accelerate: FilePath | None = None
    """Configuration of accelerate for several devices: fsdp, or a file."""

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
        return max(1, ceil(ceil(examples / (self.held_at_once * self.devices)) / self.accumulation))

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
    side: Speaker = "assistant"
    """The agent whose messages are learned; of runs."""
    only: tuple[Filled, ...] = ()
    """Codes of endings; of runs."""
    drop: tuple[Filled, ...] = ()
    """Codes of endings or behaviours to leave out; of runs."""
    min_rounds: Annotated[int, Field(ge=0, strict=True)] = 0
    sessions: tuple[Filled, ...] = ()
    """Ids of the sessions, where not all are learned; of runs."""
    share: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="Share of the conversations.")
    license: Filled | None = None
    """Licence of the data, for the model card."""


class Stage(Part):
    """A stage of a training, with its own data."""

    name: Annotated[str, Field(pattern=_STAGE_NAME)]
    data: tuple[DataSource, ...] = ()
    side: Speaker | None = None
    """Of all its data."""

    @field_validator("data", mode="before")
    @classmethod
    def _reads_paths(cls, written: object) -> object:
        sources = cast("list[object]", written if isinstance(written, list | tuple) else [written])
        return [{"path": str(source)} if isinstance(source, str | Path) else source for source in sources]


class TrainRecipe(Part):
    """A training in stages."""

    model_config = ConfigDict(populate_by_name=True)

    name: Annotated[str, Field(pattern=_STAGE_NAME)]
    description: str = ""
    origin: Literal["union", "checkpoint"] = Field(default="union", alias="from")
    """union: each stage trains the base on all data so far. checkpoint: the model of the stage before, on
    its own data."""
    base: Base
    training: Training = Training()
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    gguf: tuple[Literal["f16", "q8_0"], ...] = ("f16",)
    """Forms of the files for play; f16 is always written."""
    held_out_files: tuple[FilePath, ...] = ()
    """Questions that no stage may be trained on: JSON lines, or a text a line."""

    @model_validator(mode="after")
    def _names_each_stage_once(self) -> Self:
        names = [stage.name for stage in self.stages]
        for number, name in enumerate(names):
            if name in names[:number] or name == "base":
                raise make_fault("this name is taken", "stages", number, "name")
        return self


_KIND = FileKind(
    "training recipe", RecipeError, "`bactrian help train.md`", "training recipes", "train/built_in"
)


def list_train_recipes() -> tuple[str, ...]:
    """Return the names of the built-in training recipes."""
    return _KIND.list_built_in()


def read_train_recipe_text(name_or_path: str) -> str:
    """Return the recipe as it is written. Raises RecipeError if it cannot be read."""
    return _KIND.find(name_or_path).text


def load_train_recipe(name_or_path: str, settings: Sequence[str] = ()) -> TrainRecipe:
    """Read a built-in recipe or a file, change it by ``settings`` (``training.epochs=1``), and check it.

    Raises:
        RecipeError: it cannot be read, or is not a training recipe; the message names the line.
        InputError: a setting names nothing, or its value does not fit.
    """
    folder = None if name_or_path in list_train_recipes() else Path(name_or_path).parent
    return _read(_KIND.find(name_or_path), settings, folder)


def parse_train_recipe(
    text: str, where: str = "recipe", settings: Sequence[str] = (), folder: Path | None = None
) -> TrainRecipe:
    """Check a recipe given as text; its paths are relative to ``folder``. Raises the same errors."""
    return _read(TomlSource(where, text, _KIND), settings, folder)


def add_data(recipe: TrainRecipe, data: Mapping[str, Sequence[Path | DataSource]]) -> TrainRecipe:
    """Return ``recipe`` with the data of some stages replaced, by the stage's name; an empty name is the only stage.

    Raises:
        InputError: there is no such stage.
    """
    names = [stage.name for stage in recipe.stages]
    paths = dict(data)
    if "" in paths:
        if len(names) > 1:
            raise InputError(
                f"The recipe has {len(names)} stages; name the stage of this data.",
                where=str(paths[""][0]),
                next=f"Write STAGE=PATH, with one of {', '.join(names)}.",
            )
        paths[names[0]] = paths.pop("")
    for name in paths:
        if name not in names:
            raise InputError(
                f"There is no stage {name!r}.{suggest_name(name, names)}",
                option="run",
                next=f"Stages of {recipe.name}: {', '.join(names)}.",
            )
    stages = [
        Stage.model_validate({**stage.model_dump(), "data": list(paths[stage.name])})
        if stage.name in paths
        else stage
        for stage in recipe.stages
    ]
    return recipe.model_copy(update={"stages": tuple(stages)})


def _read(source: TomlSource, settings: Sequence[str], folder: Path | None) -> TrainRecipe:
    data = source.table()
    recipe = source.validate(TrainRecipe, data, {_apply_setting(setting, data) for setting in settings})
    return recipe if folder is None else _resolve_paths(recipe, folder)


def _apply_setting(setting: str, data: dict[str, Any]) -> KeyPath:
    """Change ``data`` by ``key=value``; ``epochs`` alone is the training's. Return the path of the changed value."""
    key, equals, written = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{setting!r} is not key=value.", option="settings", next="For example: epochs=1")
    parts = key.split(".")
    if len(parts) == 1 and parts[0] not in ("from", "name", "description", "held_out_files", "gguf"):
        parts = ["training", *parts]
    table = data
    for part in parts[:-1]:
        inner: object = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InputError(
                f"{key!r} cannot be set.", option="settings", next="For example: training.epochs=1"
            )
        table = cast("dict[str, Any]", inner)
    table[parts[-1]] = parse_value(written.strip())
    if parts[0] == "base" and parts[1] in ("model", "new"):  # The new key replaces the other
        check_table(data.get("base")).pop("new" if parts[1] == "model" else "model", None)
    return tuple(parts)


def _resolve_paths(recipe: TrainRecipe, folder: Path) -> TrainRecipe:
    """Return the recipe of a file in ``folder`` with paths relative to it."""
    content = modify_data_paths(
        recipe.model_dump(by_alias=True, exclude_unset=True), lambda path: str(folder / path)
    )
    model = recipe.base.model
    if model is not None and model != BUILT_IN_BASE and (folder / model).exists():
        content["base"]["model"] = str(folder / model)
    return TrainRecipe.model_validate(content)


def modify_data_paths(content: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return the content of a recipe with ``change`` applied to each path of its data."""
    stages = [
        {
            **stage,
            "data": [{**source, "path": change(source["path"])} for source in stage.get("data", ())],
        }
        for stage in content["stages"]
    ]
    held_out = [change(path) for path in content.get("held_out_files", ())]
    return {**content, "stages": stages, "held_out_files": held_out}


_SUFFIX = ".jinja"


def list_templates() -> tuple[str, ...]:
    """Return the names of the built-in chat templates."""
    files = resources.files("bactrian.train").joinpath("chat_templates").iterdir()
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX)))


def read_template(name_or_path: str) -> str:
    """Return a chat template: a built-in one by name, or a file in Jinja.

    Raises:
        InputError: neither exists.
    """
    if name_or_path in list_templates():
        folder = resources.files("bactrian.train").joinpath("chat_templates")
        return folder.joinpath(f"{name_or_path}{_SUFFIX}").read_text("utf-8").strip()
    try:
        return Path(name_or_path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"There is no chat template of this name and no such file.{suggest_name(name_or_path, list_templates())}",
            where=name_or_path,
            next=f"Built-in templates: {', '.join(list_templates())}. Or give the path to a file in Jinja.",
        ) from error
