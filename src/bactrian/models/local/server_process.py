"""Runs llama.cpp in a child process, so that a crash cannot kill the main program.

``python -m bactrian.models.local.server_process`` reads one line of JSON from standard input and writes one: the
address of the server, or why llama.cpp itself cannot be imported. It exits when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

_SILENT = -1
# Memory for the cached state of agents without a slot; llama.cpp restores their state from it.
_STATE_CACHE_MIB = 2048


def main() -> None:
    """Load the model that the first line of input requests, and serve until the input ends."""
    # The key comes over standard input too, because every user of the computer can read a command line.
    order = json.loads(sys.stdin.readline())
    try:
        server = _load(order["path"], order["slots"], order["window"], order["key"])
    except ImportError as error:  # a library of the system is missing, or older than it needs
        _answer(unusable=str(error))
        sys.exit(1)
    except RuntimeError:
        sys.exit(1)
    _answer(address=server.listening_address)
    sys.stdin.read()  # It ends with the program, also with one that is killed.
    os._exit(0)  # A normal exit would first finish pending requests.


def _answer(**answer: str) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def _load(path: str, slots: int, window: int, key: str) -> Any:
    library = import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = path
    parameters.n_parallel = slots
    parameters.n_ctx = slots * window
    parameters.fit_params = False  # a window that does not fit is an error, not a smaller window
    parameters.cache_ram_mib = _STATE_CACHE_MIB
    # Threads wait for each other several hundred times per token, which takes long on busy cores. Prompts and batches
    # of several slots have more work between the waits.
    cores = os.cpu_count() or 2
    parameters.cpuparams.n_threads = max(1, cores // 2)
    parameters.cpuparams_batch.n_threads = cores
    parameters.verbosity = _SILENT  # its lowest level writes to stdout, where only data belongs
    parameters.warmup = False
    parameters.hostnames = ["127.0.0.1"]
    parameters.api_keys = [key]
    parameters.ui = False
    return library.Server(parameters)


if __name__ == "__main__":
    main()
