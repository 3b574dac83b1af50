"""Trains a recipe: data, base model, forecast, one process for each stage, and a check of the written files.

A process for each stage frees all memory at its end, and whatever takes it down takes nothing else with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import bactrian
from bactrian.errors import BactrianError, InputError, MissingExtra, Refused, RunInUse, StoreError
from bactrian.export.manifest import render_card
from bactrian.models.local.llama_server import LlamaServer, start_server
from bactrian.models.local.weights import read_info
from bactrian.recipes.load import find_differences
from bactrian.records.text import Text
from bactrian.records.turn import Message
from bactrian.train import training_data
from bactrian.train.training_folder import (
    MANIFEST,
    PLAN,
    STOPPED,
    StageFolder,
    TrainedModels,
    draw_losses,
    find_play_option,
    list_stage_folders,
    log_event,
    measure_usage,
    name_gguf,
    read_json,
    read_log,
    read_plan,
    read_training,
    write_json,
)
from bactrian.train.training_recipe import NEW, DataSource, Training, TrainRecipe, add_data, load_train_recipe

_PATIENCE = 60.0  # Seconds that a stage has to finish a step and save a checkpoint
# Compiled kernels that oneDNN keeps, by default 1,024. Each length of an example has another one, and a stage
# gathered hundreds of megabytes. 32 are as fast as 1,024; 8 are too few for one length, and 9 % slower.
_KERNELS = "32"
_LOG_LINES = 3
_LOOK = 0.4  # Seconds for which the cores are watched before a worker starts
_RESUMES = "Run the same command: it resumes at the last checkpoint."
EXTRA = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "gguf")


class WorkerStopped(BactrianError):
    """Something other than this program ended the training process with SIGTERM; it saved a checkpoint first."""

    exit_code = 128 + signal.SIGTERM


def check_libraries() -> None:
    """Raise MissingExtra if a library of the extra ``train`` is missing."""
    for name in EXTRA:
        if find_spec(name) is None:
            raise MissingExtra("train", f"Training (here {name})")


async def inspect_machine() -> Mapping[str, Any]:
    """Return what this computer offers to a training: ``device``, ``name``, ``bf16``, ``free_bytes`` and ``torch``.

    Raises:
        MissingExtra: a library is missing.
        BactrianError: PyTorch does not start here.
    """
    check_libraries()
    with tempfile.TemporaryDirectory() as folder:
        async with aclosing(run_worker(("machine",), Path(folder) / "worker.log")) as events:
            return await anext(events)


async def count_free_cores() -> int:
    """Return how many cores are idle, at least one: threads that wait for busy cores slow each other down.

    The system's load average would do only once: for minutes it also counts the stage that has just ended.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    before = _read_idle_seconds()
    if before is None:
        return max(1, round(cores - os.getloadavg()[0]))
    await asyncio.sleep(_LOOK)
    idle = ((_read_idle_seconds() or before) - before) / _LOOK
    return max(1, min(cores, round(idle)))


def _read_idle_seconds() -> float | None:
    """Return how long this computer's cores were idle in all, in seconds; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        # Cpu, user, nice, system, idle, waiting
        fields = Path("/proc/stat").read_text("ascii").split(maxsplit=6)
        return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
    return None


async def run_worker(
    task: Sequence[str], log: Path, *, launcher: Sequence[str] = ()
) -> AsyncGenerator[Mapping[str, Any]]:
    """Run a worker with these arguments and yield its events. Cancelling it lets it save a checkpoint first.

    Args:
        task: ``machine``, ``prepare FOLDER`` or ``stage FOLDER NUMBER``.
        log: File for what its libraries print.
        launcher: Arguments for accelerate's launcher, for several devices.

    Raises:
        BactrianError: the worker failed, or was killed.
        WorkerStopped: the worker was stopped and can be resumed.
    """
    worker = await _start_worker(task, log, launcher)
    failure: BactrianError | None = None
    try:
        assert worker.stdout is not None
        async for line in worker.stdout:
            event = _read_event(line)
            if event.get("event") == "error":
                kind = InputError if event.get("exit_code") == InputError.exit_code else BactrianError
                failure = kind(str(event["what"]), where=event.get("where"), next=event.get("next"))
            elif event:
                yield event
        code = await worker.wait()
    finally:
        if worker.returncode is None:
            await _end(worker)
    if failure is not None:
        raise failure
    if code != 0:
        raise _explain_death(code, log)


async def _start_worker(
    task: Sequence[str], log: Path, launcher: Sequence[str]
) -> asyncio.subprocess.Process:
    settings = {
        # Spinning threads take the cores that other threads wait for.
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(await count_free_cores()),
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _KERNELS,
    }
    launched = ["-m", "accelerate.commands.launch", *launcher] if launcher else []
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", *launched, "-m", "bactrian.train.worker", *task),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C must reach only this process, which lets the worker save
            limit=1 << 24,
            env={**settings, **os.environ},
        )


async def _end(worker: asyncio.subprocess.Process) -> None:
    """Ask the worker to save and stop; kill it if that takes too long."""
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        async with asyncio.timeout(_PATIENCE):
            if worker.stdout is not None:
                await worker.stdout.read()
            await worker.wait()
    except (TimeoutError, asyncio.CancelledError):
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        await worker.wait()


def _read_event(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict):
            return event  # pyright: ignore[reportUnknownVariableType]
    return {}


def _explain_death(code: int, log: Path) -> BactrianError:
    if code in (STOPPED, -signal.SIGTERM):
        saved = ", and saved a checkpoint" if code == STOPPED else ""
        return WorkerStopped(
            f"Another process ended the training process with SIGTERM{saved}.", where=str(log), next=_RESUMES
        )
    if code == -signal.SIGKILL:
        return BactrianError(
            "The training process was killed, most likely because memory ran out.",
            where=str(log),
            next=f"{_RESUMES} If it happens again, add training.per_device=1 "
            "or training.checkpointing=true: the result is the same.",
        )
    lines = log.read_text("utf-8", "replace").strip().splitlines()[-_LOG_LINES:]
    ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return BactrianError(
        f"The training process {ended}: {' '.join(lines) or 'it said nothing'}",
        where=str(log),
        next=f"The log says more. {_RESUMES}",
    )


def find_launcher(training: Training, out: Path) -> tuple[str, ...]:
    """Return the arguments of accelerate's launcher; empty for one device.

    Raises:
        InputError: the recipe names a configuration that does not exist.
    """
    if training.accelerate is None or training.devices == 1:
        return ()
    if training.accelerate == "fsdp":
        path = out / "accelerate.yaml"
        text = resources.files("bactrian.train").joinpath("fsdp.yaml").read_text("utf-8")
        path.write_text(text.replace("num_processes: 4", f"num_processes: {training.devices}"), "utf-8")
    else:
        path = Path(training.accelerate)
        if not path.is_file():
            raise InputError(
                "There is no such configuration of accelerate.",
                where=training.accelerate,
                next='Use accelerate = "fsdp", or a file that `accelerate config` wrote.',
            )
    return ("--config_file", str(path))


# A training, from its data to its models.


# Checks that llama.cpp computes from the written files what transformers computed.


EXPECTED = "expected.json"
PROMPTS = "prompts.json"
# Largest mean difference of log-probabilities. Rounding to 16 bits makes a few hundredths.
MOST_DIFFERENCE = 0.5
_WINDOW = 4096


@asynccontextmanager
async def _serve(path: Path) -> AsyncGenerator[LlamaServer]:
    server = await start_server(path, slots=1, window=min(_WINDOW, read_info(path).window))
    try:
        yield server
    finally:
        await server.close()


async def check_stage_gguf(folder: Path, kind: str = "f16") -> dict[str, Any] | None:
    """Compare the GGUF file of this kind with what transformers computed; None without llama.cpp or a prompt.

    Raises:
        BactrianError: the file computes something else.
    """
    if find_spec("xllamacpp") is None or not (folder / EXPECTED).exists():
        return None
    if not (rows := json.loads((folder / EXPECTED).read_bytes())):
        return None
    path = folder / name_gguf(kind)
    async with _serve(path) as server:
        pairs = [(row["top"], await server.rank_next(row["prompt"], len(row["top"]))) for row in rows]
    check = compare_rankings(pairs)
    if check["mean_difference"] > MOST_DIFFERENCE:
        raise BactrianError(
            f"The written GGUF file computes something else than the trained model: log-probabilities differ by "
            f"{check['mean_difference']:.2f} on average.",
            where=str(path),
            next="The folder model/ is whole; convert it with llama.cpp's convert_hf_to_gguf.py, and report this.",
        )
    return check


def compare_rankings(pairs: Sequence[tuple[Sequence[tuple[int, float]], dict[int, float]]]) -> dict[str, Any]:
    """Compare the expected most likely tokens of each prompt with the computed ones, as log-probabilities.

    ``same_choice`` counts the prompts with the same most likely token.
    An expected first choice that is not among the computed ones counts as a large difference.
    """
    differences = [
        abs(score - ranked[token])
        for expected, ranked in pairs
        for token, score in expected
        if token in ranked
    ]
    missing = sum(expected[0][0] not in ranked for expected, ranked in pairs)
    same = sum(
        expected[0][0] == max(ranked, key=lambda token: ranked[token], default=None)
        for expected, ranked in pairs
    )
    differences += [MOST_DIFFERENCE * 10] * missing
    return {
        "prompts": len(pairs),
        "same_choice": same,
        "mean_difference": sum(differences) / len(differences) if differences else 0.0,
        "largest_difference": max(differences, default=0.0),
    }


async def check_template(base: Path, gguf: Path) -> int | None:
    """Check that ``play`` sends byte for byte what is trained on. Return the number of prompts compared.

    Raises:
        BactrianError: llama.cpp renders or tokenises a prompt differently.
    """
    if find_spec("xllamacpp") is None or not (base / PROMPTS).exists():
        return None
    rows = json.loads((base / PROMPTS).read_bytes())
    async with _serve(gguf) as server:
        for row in rows:
            messages = [Message(message["role"], Text(message["content"])) for message in row["messages"]]
            text = await server.chat(messages)
            tokens = (await server.tokens(text, begins=True)).tolist()
            if tokens != row["tokens"]:
                both = enumerate(zip(tokens, row["tokens"], strict=False), start=1)
                number = next((number for number, (sent, trained) in both if sent != trained), None)
                raise BactrianError(
                    "`play` would send another text than the one that is trained on: "
                    + (f"token {number} differs." if number is not None else "their lengths differ."),
                    where="chat template",
                    next="Use another base model, or one whose GGUF carries the same chat template.",
                )
    return len(rows)


# Trains a recipe: data, base model, forecast, and one process for each stage.


_FORWARD = 1 / 3  # Cost of an evaluated token, relative to a trained one: forward without backward
# Operations per weight and trained token (Kaplan et al. 2020, section 2.1).
_FLOPS_A_TOKEN = 6
# Operations a second: of an A100 in bf16, at the 40 % that trainings commonly reach, and of a processor's
# thread, for which the built-in model had 6e10 to 8e10 (docs/train.md).
_SPEED = {"cuda": 312e12 * 0.4, "cpu": 6e10}
# In full: 32-bit weight, gradient and the two moments of AdamW. Below adapters: the weight alone.
_BYTES_A_WEIGHT = {"full": 16, "lora": 4, "qlora": 1}
# Steps after which a training's own speed and memory say more than the number of its weights.
MEASURED_STEPS = 20


def forecast_stages(
    recipe: TrainRecipe, prepared: Mapping[str, Any], measured: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the amount of work of a training as JSON content.

    Args:
        recipe: What is trained.
        prepared: What a worker measured: tokens by stage, the machine, and the bytes of the weights.
        measured: The last of the training's steps, if it has done enough of them to tell its speed and memory.
    """
    training, machine, weights = recipe.training, prepared["machine"], int(prepared["weights"])
    # Weights on disk have 16 bits; a model made from nothing is too small to matter.
    parameters = max(1, weights // 2)
    if measured is not None:
        rate, memory = float(measured["tokens_per_second"]), int(measured["peak_bytes"])
    else:
        devices = training.devices if machine["device"] == "cuda" else machine["threads"]
        rate = devices * _SPEED[machine["device"]] / (_FLOPS_A_TOKEN * parameters)
        memory = parameters * _BYTES_A_WEIGHT[training.method] // training.devices
    if machine["device"] == "cpu":
        memory += weights  # the end of a stage writes the model from a second copy
    counts: Sequence[Mapping[str, Any]] = prepared["stages"]
    evaluated = sum(count["held-out"]["tokens"] for count in counts)
    evaluations = training.evaluations + 1 if evaluated and training.evaluations else 0
    stages: list[dict[str, Any]] = []
    for number, stage in enumerate(recipe.stages):
        parts = counts[: number + 1] if recipe.origin == "union" else counts[number : number + 1]
        examples = sum(count["train"]["examples"] for count in parts)
        # Tokens that are trained on count each as often as they are seen.
        tokens = training.count_seen(examples, sum(count["train"]["tokens"] for count in parts))
        seconds = (tokens + evaluations * evaluated * _FORWARD) / rate
        steps = training.count_steps(examples)
        stages.append(
            {"name": stage.name, "examples": examples, "steps": steps, "tokens": tokens, "seconds": seconds}
        )
    return {
        "stages": stages,
        "tokens": sum(stage["tokens"] for stage in stages),
        "seconds": sum(stage["seconds"] for stage in stages),
        "tokens_per_second": rate,
        "memory": memory,  # bytes, per device
        "disk": 2 * weights * len(stages) + weights * (6 if training.method == "full" else 1),
        "measured": measured is not None,
        "machine": str(machine["name"]),
    }


def find_measured_step(folders: Sequence[StageFolder]) -> Mapping[str, Any] | None:
    """Return the last step of a training that has done enough of them to tell its speed; None otherwise."""
    steps = [event for folder in folders for event in read_log(folder.log) if event["event"] == "step"]
    return steps[-1] if len(steps) >= MEASURED_STEPS else None


OnEvent = Callable[[Mapping[str, Any]], None]  # Receives what happens: dictionaries with the key `event`
_LOCK = ".lock"
_WORKER_LOG = "worker.log"
_UNPREPARED = ".unprepared"  # Marks a folder that was empty and has no plan yet
# Settings of a training that may differ when it is resumed: they change time and memory only.
_FREE = frozenset(("per_device", "checkpointing", "save_minutes", "devices", "accelerate", "tf32"))


@dataclass(frozen=True, slots=True)
class TrainOrder:
    """What to train, and where."""

    recipe: str | TrainRecipe  # Name or path of a recipe, or a recipe
    # Folder of the training. One that contains the same training is continued.
    out: Path
    # Runs or JSON lines by stage, instead of the recipe's; the empty name is the only stage.
    data: Mapping[str, Sequence[Path | DataSource]] = field(default_factory=dict[str, list[DataSource]])
    settings: Sequence[str] = ()  # Changes to the recipe, `key=value`

    def read_recipe(self) -> TrainRecipe:
        """Return the recipe with its data. Raises InputError if it cannot be used."""
        recipe = self.recipe
        if isinstance(recipe, str):
            recipe = load_train_recipe(recipe, self.settings)
        return add_data(recipe, self.data)


async def forecast_training(order: TrainOrder, on_event: OnEvent | None = None) -> dict[str, Any]:
    """Prepare the data and the base model, and return what the training will take.

    The numbers of weights and tokens estimate the time, until the training has done 20 steps, which measure it.

    Raises:
        BactrianError: the recipe, the data or the base model cannot be used.
    """
    recipe = order.read_recipe()
    check_libraries()
    with _lock(order.out):
        return await _prepare(recipe, order.out, on_event or (lambda _: None))


async def train_recipe(order: TrainOrder, on_event: OnEvent | None = None) -> TrainedModels:
    """Train all stages of a recipe, and return them. Stages that are finished already are kept.

    Raises:
        BactrianError: the recipe, the data or the base model cannot be used, or a stage failed.
        RunInUse: another process trains in the folder.
    """
    recipe = order.read_recipe()
    check_libraries()
    tell: OnEvent = on_event or (lambda _: None)
    with _lock(order.out):
        forecast = await _prepare(recipe, order.out, tell)
        folders = list_stage_folders(order.out, [stage.name for stage in recipe.stages])
        tell({"event": "forecast", **forecast})
        prepared = read_json(order.out / "prepared.json")
        for stage in folders[1:]:
            if stage.is_complete:
                tell({"event": "kept", "number": stage.number, "name": stage.name})
            else:
                tell({"event": "stage", "number": stage.number, "name": stage.name, "of": len(folders) - 1})
                await _train_stage(stage, recipe, prepared, tell)
                done = {"number": stage.number, "name": stage.name, "folder": str(stage.folder)}
                tell({"event": "finished", **done})
        draw_losses(folders[1:], order.out / "curves.svg")
    return read_training(order.out)


async def _prepare(recipe: TrainRecipe, out: Path, tell: OnEvent) -> dict[str, Any]:
    """Write plan, data and base model, unless they are there."""
    folders = list_stage_folders(out, [stage.name for stage in recipe.stages])
    content = recipe.model_dump(mode="json", by_alias=True)
    has_base = _has_base(folders[0])
    if (out / PLAN).exists():
        plan = read_plan(out)
        check_same(plan["recipe"], content, out)
        if training_data.find_data_paths(plan["recipe"]) != training_data.find_data_paths(content):
            tell({"event": "reading"})
            await training_data.check_moved_data(recipe, folders[1:])
        has_base = has_base and training_data.find_base_path(plan["recipe"]) == training_data.find_base_path(
            content
        )
        write_json(out / PLAN, {**plan, "recipe": content})
    else:
        _check_unused(out)
        tell({"event": "reading"})
        data = await training_data.prepare_data(recipe, folders[1:])
        write_json(out / PLAN, {"bactrian": bactrian.__version__, "recipe": content, "data": data})
        (out / _UNPREPARED).unlink()
    prompts = folders[0].folder / PROMPTS
    if not has_base or prompts.exists():  # Prompts that are still there differ, or were not compared yet.
        async with aclosing(run_worker(("prepare", str(out)), out / _WORKER_LOG)) as events:
            async for event in events:
                tell(event)
        if (gguf := folders[0].gguf) is not None:
            compared = await check_template(folders[0].folder, gguf)
            prompts.unlink(missing_ok=True)
            tell({"event": "template", "prompts": compared})
    return forecast_stages(recipe, read_json(out / "prepared.json"), find_measured_step(folders))


def _has_base(folder: StageFolder) -> bool:
    """Return True if the base model was opened, and is still where it was."""
    if not (folder.is_complete and (folder.root / "prepared.json").exists()):
        return False
    return folder.model.exists() and (folder.gguf is None or folder.gguf.exists())


async def _train_stage(
    stage: StageFolder, recipe: TrainRecipe, prepared: Mapping[str, Any], tell: OnEvent
) -> None:
    stage.folder.mkdir(exist_ok=True)
    if not (stage.folder / "trained.json").exists():
        _check_disk(stage, recipe, prepared)
        launcher = find_launcher(recipe.training, stage.root)
        task = ("stage", str(stage.root), str(stage.number))
        worker = run_worker(task, stage.folder / _WORKER_LOG, launcher=launcher)
        async with aclosing(worker) as events:
            async for event in events:
                log_event(stage.log, event)
                tell({"stage": stage.name, **event})
                if event["event"] == "step" and event["step"] == MEASURED_STEPS and stage.number == 1:
                    tell({"event": "forecast", **forecast_stages(recipe, prepared, event)})
    trained = read_json(stage.folder / "trained.json")
    if trained["gguf"] is not None:
        for kind in dict.fromkeys(("f16", *recipe.gguf)):
            check = await check_stage_gguf(stage.folder, kind)
            trained["gguf_check" if kind == "f16" else f"gguf_check_{kind}"] = check
            tell({"event": "checked", "stage": stage.name, "file": name_gguf(kind), "check": check})
    draw_losses([stage], stage.folder / "curves.svg")
    manifest = _describe(stage, recipe, prepared, trained)
    write_model_card(stage.folder / "README.md", manifest, recipe)
    write_json(stage.folder / MANIFEST, manifest)
    shutil.rmtree(stage.checkpoints, ignore_errors=True)
    for name in ("expected.json", "trained.json"):
        (stage.folder / name).unlink(missing_ok=True)


def _describe(
    stage: StageFolder, recipe: TrainRecipe, prepared: Mapping[str, Any], trained: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest of a stage."""
    plan = read_plan(stage.root)
    base = list_stage_folders(stage.root, [])[0].manifest
    numbers = range(1 if recipe.origin == "union" else stage.number, stage.number + 1)
    return {
        "number": stage.number,
        "name": stage.name,
        "recipe": recipe.name,
        "from": recipe.origin,
        "base": base["base"],
        "data": [{**plan["data"][index - 1], "counts": prepared["stages"][index - 1]} for index in numbers],
        "template": base["template"],
        "training": recipe.training.model_dump(mode="json"),
        "seed": recipe.training.seed,
        "bactrian": bactrian.__version__,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": "model",
        **{key: value for key, value in trained.items() if key != "format"},
        **measure_usage(stage.log),
    }


def write_model_card(path: Path, manifest: Mapping[str, Any], recipe: TrainRecipe) -> None:
    """Write the card of a stage from its manifest. Every number in it was measured."""
    template = resources.files("bactrian.train").joinpath("model_card.md.j2").read_text("utf-8")
    known = {"origin": manifest["from"], "play_option": find_play_option(manifest)}
    path.write_text(render_card(template, {**manifest, **known}, recipe=recipe, new=NEW), "utf-8")


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], out: Path) -> None:
    """Raise InputError if the recipe of a folder differs from ``now``, apart from limits of time and memory."""
    old, new = _strip_free(before), _strip_free(now)
    if old != new:
        raise InputError(
            f"This folder contains another training: {'; '.join(find_differences(old, new)[:3])}.",
            where=str(out),
            next="Use another out=FOLDER, or the recipe and the settings that it was begun with.",
        )


def _strip_free(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe without what does not change the result: limits, and the paths of files."""
    content = training_data.strip_paths(content)
    training = {key: value for key, value in content["training"].items() if key not in _FREE}
    return {**content, "description": "", "training": training}


def _check_unused(out: Path) -> None:
    """Raise InputError if the folder contains something other than an unfinished preparation."""
    known = {_LOCK, _WORKER_LOG, f".{PLAN}.part"}
    if (out / _UNPREPARED).exists():  # so the data was written here, and its plan was not
        known |= {"data", _UNPREPARED}
    strange = [path.name for path in out.iterdir() if path.name not in known]
    if strange:
        (out / _LOCK).unlink(missing_ok=True)  # the folder is left as it was
        raise InputError(
            f"This folder contains something other than a training: {strange[0]}.",
            where=str(out),
            next="Name a new folder with out=FOLDER.",
        )
    (out / _UNPREPARED).touch()
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
            next="Wait for it, or use another out=FOLDER.",
        ) from error
    except OSError as error:
        raise InputError(
            f"The folder cannot be written: {error.strerror}.",
            where=str(out),
            next="Name another with out=FOLDER.",
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
