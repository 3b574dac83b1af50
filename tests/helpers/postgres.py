"""A PostgreSQL server of the tests, and programs that misbehave between it and its clients."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


def find_programs() -> Path | None:
    """The folder of the server's programs; None if it is not installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(
        Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: path.parent.name.zfill(3)
    )


@dataclass
class PostgresServer:
    """A server in a temporary folder, reached by TCP on loopback."""

    folder: Path
    port: int
    programs: Path

    def address(self, database: str = "postgres", *, port: int | None = None, **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}" + (
            f"?{query}" if query else ""
        )

    def create_database(self, name: str) -> None:
        self.run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the server as the user of the server, and give what it writes."""
        command = [str(self.programs / program), *arguments]
        if os.getuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        # The server goes on with the streams it inherits, so none of them is a pipe.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", check=False, timeout=120
            )
            said.seek(0)
            text = said.read().decode()
        assert done.returncode == 0, text
        return text

    def start(self) -> None:
        options = (
            f"-c port={self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
            " -c fsync=off -c max_connections=60 -c shared_buffers=16MB"
        )
        log = str(self.folder / "log")
        self.run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "60", "-l", log, "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")


@contextmanager
def run_server() -> Generator[PostgresServer]:
    """Start a server; the test is skipped where PostgreSQL is not installed."""
    programs = find_programs()
    if programs is None or (os.getuid() == 0 and not shutil.which("setpriv")):
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="bactrian-postgres-", dir="/tmp"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = PostgresServer(folder, port, programs)
    try:
        server.run("initdb", "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
