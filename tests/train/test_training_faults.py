"""What goes wrong in the middle of a training: the disk, the memory, the GPU, the numbers, and moved or changed files.

Runs where the extra ``train`` is installed: it needs PyTorch.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import BactrianError, InputError, StoreError
from bactrian.models.local.local_model import hash_weights
from bactrian.train.training import (
    EXTRA,
    TrainOrder,
    WorkerStopped,
    forecast_stages,
    forecast_training,
    run_worker,
    train_recipe,
)
from bactrian.train.training_folder import read_json, read_plan, write_json
from bactrian.train.training_recipe import TrainRecipe
from tests.helpers.disks import mounted, resize
from tests.helpers.trainings import list_workers, order_training

for name in EXTRA:
    pytest.importorskip(name, reason="needs PyTorch: pip install 'bactrian[train]'")
# The libraries warn about their own future.
pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]
STEPS = 8


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training whose data and base model are ready, with a checkpoint at each step."""
    folder = tmp_path_factory.mktemp("prepared")
    asyncio.run(forecast_training(order_training(folder, steps=STEPS, save_minutes=1e-6)))
    return folder / "out"


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Give this process back its signals and threads, which a stage takes over; a worker is offline by a variable."""
    import torch

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    before, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    yield
    signal.signal(signal.SIGTERM, before)
    torch.set_num_threads(threads)
    gc.collect()


def train_here(root: Path, on_event: Callable[[str, Mapping[str, Any]], None]) -> list[dict[str, Any]]:
    """Train the first stage in this process; gives its events."""
    from bactrian.train.worker.train_stage import train_stage

    seen: list[dict[str, Any]] = []

    def emit(event: str, **values: Any) -> None:
        seen.append({"event": event, **values})
        on_event(event, values)

    assert train_stage(root, 1, emit)
    return seen


def explain(error: BaseException) -> str:
    from bactrian.train.worker.worker_events import explain_failure

    return str(explain_failure(error))


def test_a_full_disk_keeps_the_last_checkpoint_and_the_same_stage_goes_on(
    prepared: Path, tmp_path: Path
) -> None:
    from bactrian.train.worker.train_stage import find_checkpoint

    with mounted(tmp_path / "disk", "size=100m") as disk:
        root = shutil.copytree(prepared, disk / "out")

        def fill(at: str, step: int | None) -> Callable[[str, Mapping[str, Any]], None]:
            def watch(event: str, values: Mapping[str, Any]) -> None:
                if event == at and values.get("step") == step:
                    used = shutil.disk_usage(disk).used
                    resize(disk, str(used + 65536))

            return watch

        for event, step, kept in (("saved", 3, 3), ("converting", None, STEPS)):
            with pytest.raises(Exception) as failure:
                train_here(root, fill(event, step))
            assert explain(failure.value).startswith("No space is left on the disk."), failure.value
            checkpoint = find_checkpoint(root / "01-colours" / "checkpoints")
            assert checkpoint is not None
            assert checkpoint.name == f"checkpoint-{kept}"
            resize(disk, "100m")
        assert not (root / "01-colours" / "model.gguf").exists()
        seen = train_here(root, lambda *_: None)
        assert next(event for event in seen if event["event"] == "began")["step"] == STEPS
        assert (root / "01-colours" / "model.gguf").exists()


async def test_a_full_disk_under_the_data_is_told_in_a_line(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8k") as disk:
        order = order_training(tmp_path)
        with pytest.raises(StoreError, match="No space left"):
            await forecast_training(TrainOrder(order.recipe, disk / "out"))
        resize(disk, "100m")
        assert (await forecast_training(TrainOrder(order.recipe, disk / "out")))["tokens"]


async def test_a_failure_is_told_also_if_the_disk_has_no_room_for_the_log(tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", {"recipe": {"base": {"model": None}}})
    with mounted(tmp_path / "disk", "size=8k") as disk:
        (disk / "fill").write_bytes(bytes(8192))
        with pytest.raises(BactrianError, match="Training failed: ValidationError"):
            async for _ in run_worker(("prepare", str(tmp_path)), disk / "worker.log"):
                pass


def test_a_stage_trains_on_the_tokens_that_were_forecast(prepared: Path, tmp_path: Path) -> None:
    root = shutil.copytree(prepared, tmp_path / "out")
    recipe = TrainRecipe.model_validate(read_plan(root)["recipe"])
    forecast = forecast_stages(recipe, read_json(root / "prepared.json"))
    steps = [event for event in train_here(root, lambda *_: None) if event["event"] == "step"]
    assert steps[-1]["tokens"] == forecast["stages"][0]["tokens"] > 0
    assert steps[-1]["step"] == forecast["stages"][0]["steps"] == STEPS


def test_a_lost_gpu_ends_the_stage_which_resumes_at_its_last_checkpoint(
    prepared: Path, tmp_path: Path
) -> None:
    import torch

    root = shutil.copytree(prepared, tmp_path / "out")

    def lose(event: str, values: Mapping[str, Any]) -> None:
        if event == "step" and values["step"] == 5:
            raise torch.AcceleratorError(
                "CUDA error: unspecified launch failure\nCompile with TORCH_USE_CUDA_DSA"
            )

    with pytest.raises(torch.AcceleratorError) as failure:
        train_here(root, lose)
    told = explain(failure.value)
    assert told.startswith("The GPU was lost: AcceleratorError: CUDA error: unspecified launch failure\n")
    assert "resumes at the last checkpoint" in told
    seen = train_here(root, lambda *_: None)
    assert next(event for event in seen if event["event"] == "began")["step"] == 4


def test_too_little_memory_is_told_with_what_needs_less() -> None:
    import torch

    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**45)
    assert explain(failure.value).startswith("There is too little memory for this training.")
    assert "per_device=1" in explain(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))


@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "Permission denied", "model"), RuntimeError("Read-only file system (os error 30)")],
)
def test_a_folder_that_may_not_be_written_is_told_with_what_to_change(error: Exception) -> None:
    told = explain(error)
    assert told.startswith("A file cannot be read or written: ")
    assert "Change its permissions" in told


def test_a_diverging_stage_ends_and_its_last_checkpoint_is_good(prepared: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    root = shutil.copytree(prepared, tmp_path / "out")
    overflow = False

    def note(event: str, values: Mapping[str, Any]) -> None:
        nonlocal overflow
        overflow = event == "saved" and values["step"] == 4

    def spoil(_module: Any, _inputs: Any, output: Any) -> Any:
        return output * float("inf") if overflow and isinstance(output, torch.Tensor) else None

    hook = torch.nn.modules.module.register_module_forward_hook(spoil)
    try:
        with pytest.raises(
            BactrianError, match="not a number at step 5.* last good checkpoint is checkpoint-4"
        ):
            train_here(root, note)
    finally:
        hook.remove()
    (weights,) = (root / "01-colours" / "checkpoints").glob("checkpoint-4/model.safetensors")
    assert all(bool(weight.isfinite().all()) for weight in load_file(weights).values())


def test_a_checkpoint_that_cannot_be_read_is_named_and_kept(prepared: Path, tmp_path: Path) -> None:
    from bactrian.train.worker.train_stage import find_checkpoint

    root = shutil.copytree(prepared, tmp_path / "out")

    class Interrupted(Exception):
        pass

    def interrupt(event: str, values: Mapping[str, Any]) -> None:
        if event == "saved" and values["step"] == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_here(root, interrupt)
    checkpoint = find_checkpoint(root / "01-colours" / "checkpoints")
    assert checkpoint is not None
    (checkpoint / "optimizer.pt").write_bytes(b"of another version")
    with pytest.raises(Exception) as failure:
        train_here(root, lambda *_: None)
    told = explain(failure.value)
    assert told.startswith(f"{checkpoint}: The training cannot continue from this checkpoint")
    assert "remove this folder" in told
    shutil.rmtree(checkpoint)
    seen = train_here(root, lambda *_: None)
    assert next(event for event in seen if event["event"] == "began")["step"] == 0


def test_a_model_that_changed_since_the_stage_before_is_refused(prepared: Path, tmp_path: Path) -> None:
    root = shutil.copytree(prepared, tmp_path / "out")
    change_last_byte(root / "00-base" / "model" / "model.safetensors")
    with pytest.raises(InputError, match="The model of the stage base has changed"):
        train_here(root, lambda *_: None)


async def test_a_training_that_was_moved_goes_on_with_the_same_data_and_base_alone(
    prepared: Path, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(event: Mapping[str, Any]) -> None:
        if event["event"] == "finished":
            raise Interrupted

    def order(project: Path) -> TrainOrder:
        plain = order_training(project, steps=1)
        assert not isinstance(plain.recipe, str)
        base = plain.recipe.base.model_copy(update={"new": None, "model": str(project / "mini")})
        return TrainOrder(plain.recipe.model_copy(update={"base": base}), project / "out")

    (tmp_path / "project").mkdir()
    shutil.copytree(prepared / "00-base" / "model", tmp_path / "project" / "mini")
    with pytest.raises(Interrupted):
        await train_recipe(order(tmp_path / "project"), interrupt)
    moved = (tmp_path / "project").rename(tmp_path / "moved")
    again = order(moved)

    sizes = (moved / "sizes.jsonl").read_text("utf-8")
    (moved / "sizes.jsonl").write_text(sizes.replace("huge", "vast"), "utf-8")
    with pytest.raises(InputError, match="data of the stage sizes is not that which"):
        await train_recipe(again)
    one_more = sizes.splitlines(keepends=True)[0].replace("large", "wide")
    (moved / "sizes.jsonl").write_text(sizes + one_more, "utf-8")  # It has grown, as a run does.

    change_last_byte(moved / "mini" / "model.safetensors")
    with pytest.raises(InputError, match="another base model"):
        await train_recipe(again)
    change_last_byte(moved / "mini" / "model.safetensors")

    seen: list[Mapping[str, Any]] = []
    trained = await train_recipe(again, seen.append)
    assert [event["name"] for event in seen if event["event"] == "kept"] == ["colours"]
    assert [stage.name for stage in trained.stages] == ["base", "colours", "sizes"]
    manifest = json.loads((moved / "out" / "02-sizes" / "manifest.json").read_text("utf-8"))
    assert manifest["weights"] == hash_weights(moved / "out" / "02-sizes" / "model")


async def test_a_training_process_that_another_ends_says_so(tmp_path: Path) -> None:
    async def end() -> None:
        while not (workers := list_workers()):
            await asyncio.sleep(0.001)
        os.kill(workers[0], signal.SIGTERM)

    ending = asyncio.create_task(end())
    with pytest.raises(WorkerStopped, match="ended the training process with SIGTERM") as stopped:
        async for _ in run_worker(("prepare", str(tmp_path)), tmp_path / "worker.log"):
            pass
    await ending
    assert (stopped.value.exit_code, "resumes" in str(stopped.value)) == (143, True)


def change_last_byte(path: Path) -> None:
    """Change the last byte of a file; a second time, it is as before."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
