# pyright: basic, reportMissingImports=false
"""Failures of the libraries and of the machine, as errors that name the next action."""

from __future__ import annotations

from bactrian.errors import BactrianError

_LESS = "Add --set per_device=1 or --set checkpointing=true: the result is the same, and finished stages are kept."
_RESUMES = "run the same command: it resumes at the last checkpoint."


def explain_failure(error: BaseException) -> BactrianError:
    """Return what to tell a person about an error of a library."""
    text = str(error)
    first = next(iter(text.splitlines()), "")
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in text:
        return BactrianError("There is too little memory for this training.", next=_LESS)
    if "No space left" in text or "PytorchStreamWriter failed" in text:
        return BactrianError("No space is left on the disk.", next=f"Free some space, and {_RESUMES}")
    if "CUDA" in text or "NCCL" in text or "cuBLAS" in text:
        return BactrianError(f"The GPU was lost: {first}", next=f"Check `nvidia-smi`, and {_RESUMES}")
    return BactrianError(
        f"Training failed: {kind}: {first}", next=f"The log worker.log says more; {_RESUMES}"
    )
