"""A PostgreSQL server of the tests, and programs that misbehave between it and its clients."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
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

    @contextmanager
    def has_tablespace(self, folder: Path) -> Generator[str]:
        """Give the name of a new database whose tables are in ``folder``."""
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        name = folder.name
        self.ask(f"CREATE TABLESPACE {name} LOCATION '{folder}'")
        try:
            self.ask(f"CREATE DATABASE {name} TABLESPACE {name}")
            yield name
        finally:
            self.ask(f"DROP DATABASE {name} WITH (FORCE)")
            self.ask(f"DROP TABLESPACE {name}")

    @contextmanager
    def run_replica(self) -> Generator[PostgresServer]:
        """Start a server that follows this one, some moments behind."""
        replica = PostgresServer(self.folder / "replica", find_port(), self.programs)
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
        self.run("pg_basebackup", *where, "-D", str(replica.folder / "data"), "-R", "-c", "fast", "--no-sync")
        replica.start()
        try:
            yield replica
        finally:
            replica.stop("immediate")
            shutil.rmtree(replica.folder)

    @contextmanager
    def run_bouncer(self) -> Generator[int]:
        """Start pgbouncer in transaction mode before the server, and give its port."""
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        if not Path(program).exists():
            pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
        port, settings = find_port(), self.folder / "bouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
            f"ignore_startup_parameters = extra_float_digits\nlogfile = {self.folder / 'bouncer.log'}\n"
        )
        process = subprocess.Popen(_as_postgres([program, "-q", str(settings)]), cwd="/")
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait()

    def ask(self, query: str) -> None:
        """Do something that is no part of a transaction."""
        with psycopg.connect(self.address(), autocommit=True) as connection:
            connection.execute(query.encode())

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the server as the user of the server, and give what it writes."""
        command = _as_postgres([str(self.programs / program), *arguments])
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

    def promote(self) -> None:
        """Make a replica the server that writes."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _as_postgres(command: list[str]) -> list[str]:
    """The same command for the user of the server, if that is another one."""
    if os.getuid() == 0:
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
    return command


@contextmanager
def run_server() -> Generator[PostgresServer]:
    """Start a server; the test is skipped where PostgreSQL is not installed."""
    programs = find_programs()
    if programs is None or (os.getuid() == 0 and not shutil.which("setpriv")):
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="bactrian-postgres-", dir="/tmp"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    server = PostgresServer(folder, find_port(), programs)
    try:
        server.run("initdb", "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
