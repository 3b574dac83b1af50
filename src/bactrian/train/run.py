"""Trains a recipe: data, base model, forecast, and one process for each stage. Nothing is done twice."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

import bactrian
from bactrian.errors import InputError, Refused, RunInUse, StoreError
from bactrian.recipes.load import find_differences
from bactrian.train.accelerate import find_launcher
from bactrian.train.card import write_card
from bactrian.train.check import check_stage_gguf, check_template
from bactrian.train.curves import draw_curves
from bactrian.train.data.moved import check_moved_data, find_base_place, find_data_places, strip_places
from bactrian.train.data.prepare import prepare_data
from bactrian.train.folder import (
    MANIFEST,
    PLAN,
    StageFolder,
    TrainedModels,
    list_stage_folders,
    name_gguf,
    read_json,
    read_plan,
    read_training,
    write_json,
)
from bactrian.train.forecast import TrainingForecast, forecast_stages
from bactrian.train.load import add_data, load_train_recipe
from bactrian.train.log import StageLog, measure_usage
from bactrian.train.process import check_libraries, run_worker
from bactrian.train.recipe import TrainRecipe

OnEvent = Callable[[Mapping[str, Any]], None]
"""Receives what happens: dictionaries with the key ``event``."""
_LOCK = ".lock"
_WORKER_LOG = "worker.log"
_FREE = frozenset(("per_device", "checkpointing", "save_minutes", "devices", "accelerate", "tf32"))
"""Settings of a training that may differ when it is resumed: they change time and memory only."""


@dataclass(frozen=True, slots=True)
class TrainOrder:
    """What to train, and where."""

    recipe: str | TrainRecipe
    """Name or path of a recipe, or a recipe."""
    out: Path
    """Folder of the training. One that contains the same training is continued."""
    data: Mapping[str, Sequence[Path]] = field(default_factory=dict[str, Sequence[Path]])
    """Runs or JSON lines by stage, instead of the recipe's; the empty name is the only stage."""
    settings: Sequence[str] = ()
    """Changes to the recipe, ``key=value``."""

    def read_recipe(self) -> TrainRecipe:
        """Return the recipe with its data. Raises InputError if it cannot be used."""
        recipe = self.recipe
        if isinstance(recipe, str):
            recipe = load_train_recipe(recipe, self.settings)
        return add_data(recipe, self.data)


async def forecast_training(order: TrainOrder, on_event: OnEvent | None = None) -> TrainingForecast:
    """Prepare the data and the base model, probe three steps, and return what the training will take.

    Raises:
        BactrianError: the recipe, the data or the base model cannot be used.
    """
    recipe = order.read_recipe()
    check_libraries()
    with _lock(order.out):
        return await _prepare(recipe, order.out, on_event or _ignore)


async def train_recipe(order: TrainOrder, on_event: OnEvent | None = None) -> TrainedModels:
    """Train all stages of a recipe, and return them. Stages that are finished already are kept.

    Raises:
        BactrianError: the recipe, the data or the base model cannot be used, or a stage failed.
        RunInUse: another process trains in the folder.
    """
    recipe = order.read_recipe()
    check_libraries()
    tell = on_event or _ignore
    with _lock(order.out):
        forecast = await _prepare(recipe, order.out, tell)
        folders = list_stage_folders(order.out, [stage.name for stage in recipe.stages])
        tell({"event": "forecast", **forecast.to_json()})
        prepared = read_json(order.out / "prepared.json")
        for stage in folders[1:]:
            if stage.is_complete:
                tell({"event": "kept", "number": stage.number, "name": stage.name})
            else:
                tell({"event": "stage", "number": stage.number, "name": stage.name, "of": len(folders) - 1})
                await _train_stage(stage, recipe, prepared, tell)
                tell(
                    {
                        "event": "finished",
                        "number": stage.number,
                        "name": stage.name,
                        "folder": str(stage.path),
                    }
                )
        draw_curves(folders[1:], order.out / "curves.svg")
    return read_training(order.out)


async def _prepare(recipe: TrainRecipe, out: Path, tell: OnEvent) -> TrainingForecast:
    """Write plan, data and base model, unless they are there."""
    folders = list_stage_folders(out, [stage.name for stage in recipe.stages])
    content = recipe.model_dump(mode="json", by_alias=True)
    has_base = _has_base(folders[0])
    if (out / PLAN).exists():
        plan = read_plan(out)
        check_same(plan["recipe"], content, out)
        if find_data_places(plan["recipe"]) != find_data_places(content):
            tell({"event": "reading"})
            await check_moved_data(recipe, plan["data"], out)
        has_base = has_base and find_base_place(plan["recipe"]) == find_base_place(content)
        write_json(out / PLAN, {**plan, "recipe": content})
    else:
        _check_unused(out)
        tell({"event": "reading"})
        data = await prepare_data(recipe, folders[1:])
        write_json(out / PLAN, {"bactrian": bactrian.__version__, "recipe": content, "data": data})
    if not has_base:
        async with aclosing(run_worker(("prepare", str(out)), out / _WORKER_LOG)) as events:
            async for event in events:
                tell(event)
        base = folders[0].read_manifest()
        if base["gguf"] is not None:
            compared = await check_template(folders[0].path, folders[0].path / base["gguf"])
            tell({"event": "template", "prompts": compared})
    return forecast_stages(recipe, read_json(out / "prepared.json"))


def _has_base(folder: StageFolder) -> bool:
    """Return True if the base model was opened, and is still where it was."""
    if not (folder.is_complete and (folder.root / "prepared.json").exists()):
        return False
    manifest = folder.read_manifest()
    files = (manifest["model"], manifest["gguf"])
    return all((folder.path / name).exists() for name in files if name is not None)


async def _train_stage(
    stage: StageFolder, recipe: TrainRecipe, prepared: Mapping[str, Any], tell: OnEvent
) -> None:
    stage.path.mkdir(exist_ok=True)
    if not (stage.path / "trained.json").exists():
        _check_disk(stage, recipe, prepared)
        with StageLog(stage.log) as log:
            launcher = find_launcher(recipe.training, stage.root)
            task = ("stage", str(stage.root), str(stage.number))
            worker = run_worker(task, stage.path / _WORKER_LOG, launcher=launcher)
            async with aclosing(worker) as events:
                async for event in events:
                    log.add(event)
                    tell({"stage": stage.name, **event})
    trained = read_json(stage.path / "trained.json")
    if trained["gguf"] is not None:
        for kind in dict.fromkeys(("f16", *recipe.gguf)):
            found = await check_stage_gguf(stage.path, kind)
            trained["gguf_check" if kind == "f16" else f"gguf_check_{kind}"] = found
            tell({"event": "checked", "stage": stage.name, "file": name_gguf(kind), "check": found})
    draw_curves([stage], stage.path / "curves.svg")
    manifest = _describe(stage, recipe, prepared, trained)
    write_card(stage.path / "README.md", manifest, recipe)
    write_json(stage.path / MANIFEST, manifest)
    shutil.rmtree(stage.checkpoints, ignore_errors=True)
    for name in ("expected.json", "trained.json"):
        (stage.path / name).unlink(missing_ok=True)


def _describe(
    stage: StageFolder, recipe: TrainRecipe, prepared: Mapping[str, Any], trained: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest of a stage."""
    plan = read_plan(stage.root)
    base = list_stage_folders(stage.root, [])[0].read_manifest()
    first = 1 if recipe.origin == "union" else stage.number
    numbers = range(first, stage.number + 1)
    return {
        "number": stage.number,
        "name": stage.name,
        "recipe": recipe.name,
        "from": recipe.origin,
        "base": base["base"],
        "data": [{**plan["data"][one - 1], "counts": prepared["stages"][one - 1]} for one in numbers],
        "template": base["template"],
        "training": recipe.training.model_dump(mode="json"),
        "seed": recipe.training.seed,
        "bactrian": bactrian.__version__,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": "model",
        **{key: value for key, value in trained.items() if key != "format"},
        **asdict(measure_usage(stage.log)),
    }


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], out: Path) -> None:
    """Raise InputError if the recipe of a folder is another one than ``now``, apart from limits of time and memory."""
    old, new = _strip_free(_complete(before)), _strip_free(now)
    if old != new:
        differences = find_differences(old, new) or ["another version of bactrian began it"]
        raise InputError(
            f"This folder contains another training: {'; '.join(differences[:3])}.",
            where=str(out),
            next="Use another --out, or the recipe and the settings that it was begun with.",
        )


def _complete(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored recipe with the defaults of keys that its version did not have."""
    try:
        return TrainRecipe.model_validate(content).model_dump(mode="json", by_alias=True)
    except ValidationError:
        return content


def _strip_free(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe without what does not change the result: limits, and the places of files."""
    content = strip_places(content)
    training = {key: value for key, value in content["training"].items() if key not in _FREE}
    return {**content, "description": "", "training": training}


def _check_unused(out: Path) -> None:
    """Raise InputError if the folder contains something other than an unfinished preparation."""
    known = ("data", _LOCK, _WORKER_LOG, "00-base", f".{PLAN}.part")
    strange = [path.name for path in out.iterdir() if path.name not in known]
    if strange:
        (out / _LOCK).unlink(missing_ok=True)  # the folder is left as it was
        raise InputError(
            f"This folder contains something other than a training: {strange[0]}.",
            where=str(out),
            next="Name a new folder with --out.",
        )
    shutil.rmtree(out / "data", ignore_errors=True)


def _check_disk(stage: StageFolder, recipe: TrainRecipe, prepared: Mapping[str, Any]) -> None:
    weights: int = prepared["weights"]
    needed = weights * (2 + (6 if recipe.training.method == "full" else 1))
    free = shutil.disk_usage(stage.root).free
    if free < needed:
        raise Refused(
            f"The stage {stage.name} needs up to {needed / 1e6:,.0f} MB of disk space, "
            f"and {free / 1e6:,.0f} MB are free.",
            where=str(stage.root),
            next="Free some space, and run the same command: finished stages are kept.",
        )


@contextmanager
def _lock(out: Path) -> Generator[None]:
    """Lock the folder, so that no two processes train in it. The lock ends with its process."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / _LOCK)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunInUse(
            "Another process trains in this folder.",
            where=str(out),
            next="Wait for it, or use another --out.",
        ) from error
    except OSError as error:
        raise InputError(
            f"The folder cannot be written: {error.strerror}.",
            where=str(out),
            next="Name another with --out.",
        ) from error
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"The folder of the training cannot be written: {error.strerror or error}.",
            where=str(error.filename or out),
            next="Free some space, or mend it, and run the same command: it resumes at the last checkpoint.",
        ) from error
    finally:
        lock.release()


def _ignore(_event: Mapping[str, Any]) -> None:
    """Ignore an event."""
