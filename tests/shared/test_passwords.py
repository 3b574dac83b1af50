"""The password of a database comes from where libpq looks for it, and is shown and stored nowhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bactrian.shared.reading import pull_run
from bactrian.store.locations import read_address
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import said
from tests.helpers.postgres import PostgresServer

pytestmark = pytest.mark.system
SECRET = "s3cret-of-the-database"


@pytest.fixture(scope="module")
def user(server: PostgresServer) -> str:
    """A user who has to give a password."""
    server.ask(f"CREATE ROLE keeper LOGIN SUPERUSER PASSWORD '{SECRET}'")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all keeper 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    server.run("pg_ctl", "-D", str(server.folder / "data"), "reload")
    return "keeper"


def keep_secret(where: str, server: PostgresServer, folder: Path) -> dict[str, str]:
    """Keep the password in one of the places that libpq knows; give the variables that name it."""
    if where == "PGPASSFILE":
        kept = folder / "pass"
        kept.write_text(f"127.0.0.1:{server.port}:*:keeper:{SECRET}\n")
        kept.chmod(0o600)
        return {"PGPASSFILE": str(kept)}
    if where == "service":
        (folder / "services").write_text(f"[own]\npassword={SECRET}\n")
        return {"PGSERVICEFILE": str(folder / "services")}
    return {"PGPASSWORD": SECRET}


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [*(pytest.param(name, marks=pytest.mark.soak) for name in ("PGPASSFILE", "service")), "PGPASSWORD"],
)
async def test_a_password_is_taken_from_its_place_and_shown_and_stored_nowhere(
    server: PostgresServer, database: str, folder: Path, user: str, where: str
) -> None:
    query = {"service": "own"} if where == "service" else {}
    address = server.address(database, port=None, **query).replace("postgres@", f"{user}@")
    variables = keep_secret(where, server, folder) | {"BACTRIAN_DATA": str(folder / "data")}
    said_all = ""
    async with Endpoint([said]) as endpoint:
        model = ("--model", "openai:any", "--base-url", endpoint.url)
        for arguments in (
            ("generate", "small.toml", "--run", address, "--limit", "3", *model),
            ("status", address, "--json"),
            ("analyze", address, "--json"),
            ("--debug", "pull", address.replace(database, "missing"), "other.db"),
        ):
            done = await asyncio.to_thread(
                bactrian, *arguments, cwd=folder, text=None, own_process=True, **variables
            )
            assert done.returncode == (2 if "--debug" in arguments else 0), done.stderr
            said_all += done.stdout + done.stderr
    pull_run(read_address(server.address(database)), folder / "pulled.db")
    stored = [path.read_bytes() for path in folder.rglob("*.db*") if path.is_file()]
    dump = server.run("pg_dump", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", database)
    assert len(stored) >= 2
    assert "small" in dump
    assert SECRET not in said_all + dump
    assert not any(SECRET.encode() in each for each in stored)


def test_a_missing_or_wrong_password_is_told_with_where_to_keep_it(
    server: PostgresServer, database: str, folder: Path, user: str
) -> None:
    address = server.address(database).replace("postgres@", f"{user}@")
    for variables in ({}, {"PGPASSWORD": "wrong-one"}):
        done = bactrian("status", address, cwd=folder, text=None, own_process=True, **variables)
        assert done.returncode == 2
        assert "password" in done.stderr
        assert "PGPASSFILE" in done.stderr
        assert "wrong-one" not in done.stderr
        assert "Traceback" not in done.stderr
