"""The runs that this user knows: a wrong name is answered with the nearest of them."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from bactrian.errors import InputError
from bactrian.files.recent_runs import add_recent_run, list_recent_runs
from bactrian.store import find_address, is_run, name_run
from bactrian.store.locations import find_data_folder, find_runs


def check_exists(run: Path) -> None:
    """Refuse a run that is not there, with the name of the nearest: beside it, in the data folder, or used lately.

    Raises:
        InputError: there is no such file, and a run with a similar name.
    """
    if find_address(run):
        return
    if run.exists():
        add_recent_run(run)
        return
    near = [*find_runs(find_data_folder()), *find_runs(run.parent)]
    names = {word: path for path in near for word in (path.name, path.stem)}
    # Of other folders without the suffix, which makes all short names similar.
    used = {path.stem: path for path in filter(is_run, list_recent_runs())}
    for word, known in ((run.name, names), (run.stem, used)):
        for found in get_close_matches(word, known, n=1, cutoff=0.75):
            raise InputError(
                f"There is no such run. Did you mean {name_run(known[found])}?",
                where=str(run),
                next="`bactrian runs` lists the runs.",
            )
