"""A PostgreSQL server for the tests of a process, with an empty database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.helpers.generation import RECIPE
from tests.helpers.postgres import PostgresServer, run_server


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with run_server() as server:
        yield server


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The name of a new database."""
    name = f"d{uuid4().hex[:12]}"
    server.create_database(name)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path
