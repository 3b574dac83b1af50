"""``bactrian explore``: shows runs and their conversations as local web pages."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from bactrian import options as opts
from bactrian.api.known_runs import refresh_during
from bactrian.cli.flags import Argument, find_run_files
from bactrian.cli.run_async import WHOLE, run_async
from bactrian.cli.terminal.console import open_output, open_progress, say
from bactrian.errors import InputError, MissingExtra
from bactrian.options import LIMIT, MODEL, OVERWRITE, SOCIETY, Option
from bactrian.records.text import to_printable, write_count
from bactrian.store.locations import find_known_runs

_LATELY = 20  # Runs that are opened if none is named
_NEEDED = ("markdown_it", "math_core", "starlette", "uvicorn")


def explore(
    runs: Annotated[
        list[Path] | None,
        Argument(
            "Runs; exports, archives of chats and folders of trainings, too. Default: the runs used lately.",
            metavar="RUN",
            check=find_run_files,
        ),
    ] = None,
    host: Annotated[
        str, Option("--host", "Address to listen on. Every browser needs the token in the printed address.")
    ] = "127.0.0.1",
    port: Annotated[int, Option("--port", "Port to listen on.", min=1, max=65_535)] = 8642,
    show: Annotated[bool, Option("--open", "Open the page in the browser.")] = False,
    edit: Annotated[bool, Option("--edit", "Let the pages write marks and play sessions.")] = False,
    models: Annotated[
        list[str] | None, MODEL, "A model that the pages may play with. Can be repeated. Default: local."
    ] = None,
    societies: Annotated[
        list[Path] | None,
        replace(SOCIETY, metavar="FILE"),
        "A society's file that the pages may play, beside the built-in ones. Can be repeated.",
    ] = None,
    price: opts.TokenPrice = None,
    budget: Annotated[
        opts.Budget, "Stop before all plays of the pages cost more than this many US dollars."
    ] = None,
    bundle: Annotated[
        Path | None,
        Option("--bundle", "Write a static copy into this folder, to open from a disk or to publish."),
    ] = None,
    query: Annotated[
        str,
        Option(
            "--filter", "Conversations in the copy: what follows the question mark in the address of a list."
        ),
    ] = "",
    limit: Annotated[int, LIMIT, "Maximum number of conversations in a copy."] = 1000,
    map_file: Annotated[
        Path | None,
        Option(
            "--map", "Write a map of all RUNs as a picture (.svg), or as a page that works alone (.html)."
        ),
    ] = None,
    texts: Annotated[
        Literal["task", "instruction"], Option("--texts", "What a map shows: all tasks, or all instructions.")
    ] = "task",
    overwrite: Annotated[bool, OVERWRITE, "Replace an existing map."] = False,
) -> None:
    """Look at runs and conversations in the browser: filter, search, read."""
    is_private = bundle is None and map_file is None and host in ("127.0.0.1", "::1", "localhost")
    paths = runs or (find_known_runs()[:_LATELY] if is_private else [])
    if not paths:
        what = "No run was used lately." if is_private else "What others may see is of runs that you name."
        raise InputError(what, where="RUN", next="Name a run; `bactrian play --run tea.db` makes one.")
    if map_file is not None:
        _write_map(paths, map_file, texts, overwrite=overwrite)
    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtra("explore", "The explorer")
    if bundle is not None:
        _write_copy(paths, bundle, query, limit)
    # Imported here, so that the event loop does not wait for it.
    from bactrian.explore.server import ServerOptions, run_server

    files = tuple(map(str, societies or ()))
    if files:
        from bactrian.recipes.society_file import load_society

        for file in files:  # What is wrong with one is told at once.
            load_society(file)
    names = tuple(models or ("local",))
    if edit:
        from bactrian.models.pricing import choose_prices

        choose_prices(names, price, None, {}, budget=budget)  # What cannot be used is told at once.
    options = ServerOptions(host, port, edit=edit, models=names, societies=files, price=price, budget=budget)

    def tell() -> None:
        open_output().print(to_printable(f"{options.write_address(options.token)}\nPress Ctrl-C to stop."))
        if show:
            webbrowser.open(options.write_address(options.once))

    run_async(
        refresh_during(run_server(paths, options, tell), paths, say),
        resume="All that you made here is stored." if edit else "The runs are as they were.",
    )


def _write_copy(paths: Sequence[Path], folder: Path, query: str, limit: int) -> NoReturn:
    """Write the static copy and exit."""
    from bactrian.explore.bundle import write_bundle

    progress = open_progress()

    async def write() -> int:
        with progress.status("reading the index") as line:
            count = await write_bundle(
                paths, folder, query, limit, lambda text: line.update(to_printable(text))
            )
        progress.print(f"{write_count(count, 'conversation')} copied; open {folder / 'index.html'}")
        return 0

    run_async(write(), resume=WHOLE)


def _write_map(runs: Sequence[Path], file: Path, what: str, *, overwrite: bool) -> NoReturn:
    """Write a map into a file and exit."""
    from bactrian.explore.map_files import write_map

    progress = open_progress()

    async def write() -> int:
        with progress.status("reading") as line:
            made = await write_map(
                runs, file, what, lambda text: line.update(to_printable(text)), overwrite=overwrite
            )
        topics = write_count(len(made.names), "topic")
        progress.print(f"{write_count(len(made.places), 'text')} in {topics}: {to_printable(str(file))}")
        return 0

    run_async(write(), resume=WHOLE)
