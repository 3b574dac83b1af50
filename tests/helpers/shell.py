"""Commands of a page as a shell runs them: pipes, redirections and variables included.

``bactrian`` is on the shell's path as a small program, which hands its arguments and streams to the process that forks
commands (:mod:`tests.helpers.command`). So a command takes no second of imports.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.command import hand_over

_CLIENT = """#!{python} -ISE
import _socket as socket, marshal, os, sys  # with socket and json in their place a start would take twice as long
closed = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
for _ in closed:
    os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
link.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
order = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), "closed": closed}}
link.sendall(marshal.dumps(order))
link.shutdown(socket.SHUT_WR)
answer = b""
while answer.count(b"\\n") < 2 and (more := link.recv(64)):
    answer += more
_, code = map(int, answer.split())
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@contextmanager
def open_shell(folder: Path) -> Generator[Path]:
    """Serve the program ``bactrian`` of the folder that is yielded, until the end of the block."""
    folder.mkdir()
    address = str(folder / "relay")
    program = folder / "bactrian"
    program.write_text(_CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        threading.Thread(target=_relay, args=(server,), daemon=True).start()
        yield folder
        server.shutdown(socket.SHUT_RDWR)


def run_script(
    script: str, cwd: Path, variables: Mapping[str, str], programs: Path
) -> subprocess.CompletedProcess[str]:
    """Run the lines of a shell; the first one that fails ends it. Standard input is a person that answers 1 to all."""
    environment = {**variables, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=cwd,
        env=environment,
        input="1\n" * 200,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _relay(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
            hand_over([*descriptors, connection.fileno()])
            for descriptor in descriptors:
                os.close(descriptor)
