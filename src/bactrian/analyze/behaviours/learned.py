"""Learned behaviours of the user: trained by ``bactrian behaviours train``, stored in a file, used by name.

The files are in the folder ``behaviours`` of the user's data folder. A path to such a file works instead of the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bactrian.analyze.behaviours.cooperation import detect_turns
from bactrian.analyze.behaviours.reading import read_session
from bactrian.detect.model import DetectorModel, read_model, write_model
from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.session import Session
from bactrian.store.locations import find_data_folder


@dataclass(frozen=True, slots=True)
class LearnedBehaviour:
    """A behaviour that a trained model detects."""

    code: Behaviour
    description: str
    model: DetectorModel

    def detect(self, session: Session) -> Iterator[Finding]:
        """Yield the findings in a session, the doubtful ones with a confidence below 0.5."""
        reading = replace(read_session(session), model=self.model)
        yield from detect_turns(reading, reading.detected, self.code)


def list_learned() -> tuple[Behaviour, ...]:
    """Return the codes of the registered learned behaviours."""
    folder = find_data_folder() / "behaviours"
    return tuple(sorted(path.stem for path in folder.glob("*.json"))) if folder.is_dir() else ()


def load_learned(name: str) -> LearnedBehaviour:
    """Load a learned behaviour by its code, or from a file.

    Raises:
        InputError: the file does not exist, or does not contain a learned behaviour.
    """
    path = Path(name) if name.endswith(".json") else find_data_folder() / "behaviours" / f"{name}.json"
    try:
        model = read_model(path.read_text("utf-8"))
        return LearnedBehaviour(str(model.about["code"]), str(model.about["description"]), model)
    except OSError as error:
        raise InputError(
            f"The learned behaviour {name!r} cannot be read: {error.strerror}.",
            where=str(path),
            next="Train it with: bactrian behaviours train DATA.jsonl",
        ) from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            "The file does not contain a learned behaviour.",
            where=str(path),
            next="Train it again: bactrian behaviours train DATA.jsonl --overwrite",
        ) from error


def check_unregistered(code: str) -> None:
    """Refuse the code of a learned behaviour that exists, before anything is learned.

    Raises:
        InputError: one with this code exists.
    """
    if (place := _find_place(code)).exists():
        raise InputError("This exists already.", where=str(place), next="Use --overwrite, or another name.")


def register_learned(learned: LearnedBehaviour, *, overwrite: bool = False) -> Path:
    """Store a learned behaviour under its code, and return its file.

    Raises:
        InputError: one with this code exists and ``overwrite`` is False.
    """
    path = _find_place(learned.code)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {**learned.model.about, "code": learned.code, "description": learned.description}
    with write_atomically(path, overwrite=overwrite) as stage:
        (stage / path.name).write_text(write_model(replace(learned.model, about=about)), "utf-8")
    return path


def _find_place(code: str) -> Path:
    return find_data_folder() / "behaviours" / f"{code}.json"
