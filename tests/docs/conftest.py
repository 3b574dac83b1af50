"""The reader of all pages: an endpoint that answers every agent, a shell, and runs that a page takes as given."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from collections.abc import Generator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import pytest

from bactrian.models.providers import load_providers
from tests.helpers.command import clean_environment
from tests.helpers.endpoint import Endpoint
from tests.helpers.exports import handed
from tests.helpers.runs import ORIGIN, answer, make_run, session
from tests.helpers.shell import open_shell, run_script
from tests.helpers.versatile import answer_anyone


@dataclass(frozen=True)
class Reader:
    """A reader of the documentation: a shell with an endpoint behind every provider, and files to begin with."""

    programs: Path
    """The folder of the program ``bactrian``."""
    files: Path
    """Runs and archives that pages take as given."""
    url: str
    """Address of the endpoint."""
    config: Path
    """The folder of a providers.toml in which every provider has that address."""

    def variables(self, folder: Path) -> dict[str, str]:
        """The environment of a reader that works in ``folder``; keys are set, and a model."""
        keys = {row.key: "sk-of-a-reader" for row in load_providers().values() if row.key}
        return clean_environment(
            **keys,
            AZURE_OPENAI_ENDPOINT=self.url,
            BACTRIAN_CONFIG=str(self.config),
            BACTRIAN_DATA=str(folder / ".data"),
            BACTRIAN_MODEL="openai:gpt-4o-mini",
            COLUMNS="100",
        )


@pytest.fixture(scope="session")
def endpoint() -> Generator[str]:
    """The address of an endpoint whose event loop runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Endpoint([answer_anyone], models=["gpt-4o-mini", "gpt-4o", "large", "small", "mine"])
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    yield server.url
    asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def reader(
    endpoint: str, tmp_path_factory: pytest.TempPathFactory, guarded_processes: Path
) -> Generator[Reader]:
    """The reader, with the files that pages take as given."""
    base = tmp_path_factory.mktemp("reader")
    config, files = base / "config", base / "files"
    config.mkdir()
    files.mkdir()
    rows = resources.files("bactrian.models").joinpath("providers.toml").read_text("utf-8")
    (config / "providers.toml").write_text(re.sub(r'(?m)^address = ".*"$', f'address = "{endpoint}"', rows))
    with open_shell(base / "programs") as programs:
        reader = Reader(programs, files, endpoint, config)
        make_files(reader)
        yield reader


def make_files(reader: Reader) -> None:
    """Make the runs and archives that pages take as given: by commands where a reader would have made them so."""
    script = """
    bactrian generate ai-society --run society.db --limit 8 --model openai:gpt-4o-mini --seed 1 --quiet
    cp society.db before.db
    bactrian generate ai-society --run after.db --limit 8 --model openai:gpt-4o --seed 1 --quiet
    echo "This is a red-team exercise." > preamble.txt
    """
    done = run_script(script, reader.files, reader.variables(reader.files), reader.programs)
    assert done.returncode == 0, done.stderr
    asyncio.run(write_runs(reader.files))
    problem = {"prompt": " ".join(map(str, range(20))), "canonical_solution": "return 1"}
    (reader.files / "HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(problem).encode()))
    pack = resources.files("bactrian.protocol").joinpath("packs/ai-society.toml").read_text("utf-8")
    (reader.files / "mine.toml").write_text(pack, "utf-8")
    (reader.files / "things.txt").write_text("rain\na piano\n")


async def write_runs(files: Path) -> None:
    """Write runs of kinds that would take long to generate."""
    plays = [session(f"001_{number:03}_001", user=f"U{number}") for number in range(12)]
    german = replace(ORIGIN, models={"translator": "openai:one"}, language="German")
    translated = [
        replace(play, id=f"de_{play.id}", provenance=german, values={"language": "de", "source": play.id})
        for play in plays
    ]
    flips = ["Instruction: Plan it.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
    flipped = [session(f"002_{number:03}_001", texts=flips, code="assistant_instruct") for number in range(4)]
    await make_run(files / "physics.db", [answer()])
    await make_run(files / "german.db", translated)
    await make_run(files / "camel.db", [*plays, *flipped])
    await handed(files / "camel.db", "camel-chat", files / "ai_society_chat.tar.gz")
