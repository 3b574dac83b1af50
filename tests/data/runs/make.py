"""Make a run with an earlier version of this program: ``python make.py SOURCE VERSION OUT.sql``.

``SOURCE`` is the ``src`` folder of a checkout. One session of the run is whole, and the others are cut off by a kill in
the middle of a turn. ``VERSION`` is the schema of that checkout; version 1 is version 2 without its last migration.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
RUN = "run.db"
ROLES = ("--assistant", "Gardener", "--user", "Café Owner", "--model", "scripted:lines.json")


def write_script(folder: Path, *, delay: float, alternatives: bool = True) -> None:
    """Write the lines that the model says; each takes so many seconds. The first schemas knew no alternatives."""
    lines = json.loads((HERE / "lines.json").read_text("utf-8"))

    def slow(line: object) -> object:
        if isinstance(line, list):
            return [slow(one) for one in line] if alternatives else slow(line[0])
        return {"text": line, "delay": delay}

    script = {agent: [slow(line) for line in said] for agent, said in lines.items()}
    (folder / "lines.json").write_text(json.dumps(script), "utf-8")


def play(version: int) -> list[tuple[int, list[str]]]:
    """The commands for a run of ``version``, and the lines of events after which each is killed; 0 for never."""
    commands = [
        (0, ["play", "Plan a herb garden", *ROLES]),
        (4, ["play", "Build a bird table", *ROLES, "--plan"]),
    ]
    if version >= 4:
        commands.append(
            (8, ["play", "Plant a hedge", *ROLES, "--critic", "Head Gardener", "--proposals", "2"])
        )
    if version >= 7:
        critic = ("--critic", "Head Gardener", "--proposals", "2", "--search", "beam:2x2")
        commands.append((12, ["play", "Dig a pond", *ROLES, *critic]))
    if version >= 8:
        commands.append(
            (
                4,
                [
                    "play",
                    "Price a lawn",
                    *ROLES,
                    "--assistant-model",
                    "scripted:shop.json",
                    "--tools",
                    "shop.py",
                ],
            )
        )
    return commands


def main(source: Path, version: int, out: Path) -> None:
    """Play the sessions and write the run as SQL."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONSAFEPATH": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("recipe.toml", "shop.py", "shop.json", "judge.json"):
            (folder / file).write_bytes((HERE / file).read_bytes())

        def start(*arguments: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "bactrian", *arguments, "--json"]
            return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)

        for events, command in play(version):
            write_script(folder, delay=0.2 if events else 0.0, alternatives=version >= 4)
            with start(*command, "--run", RUN) as playing:
                assert playing.stdout is not None
                for number, _ in enumerate(playing.stdout, start=1):
                    if number == events:
                        playing.kill()
                        break
                playing.stdout.read()
        if version >= 6:
            with start("analyze", RUN, "--judge", "scripted:judge.json") as judging:
                judging.communicate()
        dump(folder / RUN, out / f"v{version}.sql", version)
        if version >= 3:
            write_script(folder, delay=0.3, alternatives=version >= 4)
            arguments = ("generate", "recipe.toml", "--run", "made.db", "--model", "scripted:lines.json")
            with start(*arguments, "--concurrency", "2", "--seed", "7") as generating:
                while generating.poll() is None and not count_sessions(folder / "made.db"):
                    time.sleep(0.02)
                generating.kill()
            dump(folder / "made.db", out / f"v{version}.generated.sql", version)


def count_sessions(path: Path) -> int:
    """Sessions of the run that have ended and are followed by others with turns."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        try:
            (ended,) = connection.execute("SELECT count(*) FROM sessions WHERE ending IS NOT NULL").fetchone()
            (begun,) = connection.execute(
                "SELECT count(*) FROM sessions WHERE ending IS NULL AND id IN (SELECT session FROM turns)"
            ).fetchone()
        except sqlite3.OperationalError:
            return 0
        return min(ended, begun)


def dump(path: Path, out: Path, version: int) -> None:
    """Write the run as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        if version == 1:
            connection.executescript("DROP TABLE calls; DELETE FROM migrations WHERE number > 1;")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        lines = [*connection.iterdump(), f"PRAGMA application_id = {application};"]
    out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), Path(sys.argv[3]).absolute())
