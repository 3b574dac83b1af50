"""One program in a sandbox: how it ends, what it leaves, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import InputError, SandboxError
from bactrian.sandbox.programs import run
from bactrian.sandbox.tiers import MIB, LandlockOnly, Limits, Tier
from tests.helpers.command import bactrian, start_python

pytestmark = pytest.mark.system

SMALL = Limits(cpu=2, wall=20, memory=512 * MIB, disk=4 * MIB, output=10_000)


@pytest.mark.parametrize(
    ("code", "ending", "exit_code"),
    [
        ("print('hello')", "ok", 0),
        ("import sys; sys.exit(0)", "ok", 0),
        ("import asyncio; asyncio.run(asyncio.sleep(0))", "ok", 0),
        ("exit(3)", "error", 3),
        ("1 / 0", "error", 1),
        ("def broken(:", "error", 1),
        ("import socket; socket.socket()", "refused", 1),
        ("bytes(1 << 30)", "memory", 1),
        ("while True: pass", "time", None),
        ("while True: print('x' * 1000)", "output", None),
        ("import os; os.abort()", "killed", None),
    ],
)
def test_an_ending_is_named(tier: Tier, code: str, ending: str, exit_code: int | None) -> None:
    limits = replace(SMALL, cpu=0.3) if ending == "time" else SMALL
    outcome = run(code, limits=limits, tier=tier)
    assert outcome.ending == ending, outcome
    assert outcome.exit_code == exit_code
    assert outcome.tier == tier.name


def test_a_program_reads_its_files_and_leaves_others(tier: Tier) -> None:
    code = "text = open('data/in.txt').read()\nopen('out.txt', 'w').write(text.upper())\nimport other\nprint(other.x)"
    files = {"data/in.txt": b"tea", "other.py": b"x = 7"}
    outcome = run(code, files, SMALL, tier=tier, collect=1000)
    assert outcome.stdout == "7\n"
    assert outcome.files["out.txt"] == b"TEA"
    assert outcome.wrote["out.txt"] == 3


def test_links_and_pipes_are_not_collected(tier: Tier) -> None:
    code = "import os\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('pipe')\nos.mkdir('d')\nos.symlink('..', 'd/up')"
    assert run(code, limits=SMALL, tier=tier, collect=1000).files == {}


def test_a_large_file_is_listed_without_its_content(tier: Tier) -> None:
    outcome = run("open('big', 'wb').truncate(2_000_000)", limits=SMALL, tier=tier, collect=1000)
    assert dict(outcome.wrote) == {"big": 2_000_000}
    assert outcome.files == {}


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a//b", "a\0b"])
def test_a_file_outside_of_the_scratch_folder_is_refused(tier: Tier, name: str) -> None:
    with pytest.raises(InputError, match="scratch folder"):
        run("", {name: b""}, SMALL, tier=tier)


def test_output_of_binary_and_of_half_characters_is_text(tier: Tier) -> None:
    outcome = run("import os; os.write(1, b'\\xff\\xc3')", limits=SMALL, tier=tier)
    assert outcome.stdout == "\ufffd\ufffd"


def test_refused_calls_are_named(tier: Tier) -> None:
    code = "import os\nfor _ in range(3):\n    try: os.fork()\n    except OSError: pass"
    outcome = run(code, limits=SMALL, tier=tier)
    assert outcome.ending == "ok"
    assert sum(outcome.refused.values()) == 3


def test_programs_of_the_system_run_in_bubblewrap(tier: Tier) -> None:
    if not tier.limits_processes:
        with pytest.raises(InputError, match="several processes"):
            run(["/bin/sh", "-c", "true"], tier=tier)
        return
    limits = Limits(processes=8)
    outcome = run(
        ["/bin/sh", "-c", "echo $(echo hi | tr h H); cat /etc/passwd; id -u > me"], limits=limits, tier=tier
    )
    assert outcome.stdout == "Hi\n"
    assert "No such file" in outcome.stderr
    assert dict(outcome.wrote) == {"me": len(str(os.getuid())) + 1} or outcome.wrote["me"] > 2


def test_children_of_a_program_end_with_it(tier: Tier) -> None:
    if not tier.limits_processes:
        pytest.skip("this tier allows one process")
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('parent')"
    outcome = run(code, limits=Limits(processes=4, wall=30), tier=tier)
    assert outcome.ending == "ok"
    assert outcome.wall < 25


def test_limits_out_of_range_are_refused() -> None:
    for make in (
        lambda: Limits(cpu=0),
        lambda: Limits(wall=float("nan")),
        lambda: Limits(memory=1),
        lambda: Limits(output=-1),
    ):
        with pytest.raises(InputError):
            make()


PARENT = """
import sys, threading, time
from bactrian.sandbox.programs import run, find_tier
threading.Thread(target=run, args=("import time; open('x', 'w'); time.sleep(987)",),
                 kwargs={"tier": find_tier(sys.argv[1])}, daemon=True).start()
time.sleep(600)
"""


def list_descendants(process: int) -> set[int]:
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) in found | {process}:
            found.add(int(path.parent.name))
    return found


def test_nothing_survives_when_the_parent_is_killed(tier: Tier) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, tier.name])
    try:
        wanted = 4 if tier.limits_processes else 2
        deadline = time.monotonic() + 30
        while len(family := list_descendants(parent.pid)) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(family) >= wanted
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 30
    while (left := [pid for pid in family if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def is_alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_no_zombie_and_no_descriptor_is_left(tier: Tier) -> None:
    run("pass", limits=SMALL, tier=tier)
    before = len(os.listdir("/proc/self/fd")), list_descendants(os.getpid())
    for _ in range(3):
        run("while True: print('x' * 1000)", limits=SMALL, tier=tier)
    assert (len(os.listdir("/proc/self/fd")), list_descendants(os.getpid())) == before


def test_the_command_shows_output_and_ending(tier: Tier, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('hi \\x1b[31m')\nopen('a.txt', 'w').write('1')\nimport os\nos.fork()")
    done = bactrian("sandbox", "run", str(program), "--tier", tier.name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "hi \n" or "\x1b" not in done.stdout
    assert "refused (exit code 1)" in done.stderr
    assert "wrote: a.txt (1 byte) – not kept; --out FOLDER keeps files" in done.stderr


def test_the_summary_names_a_few_of_many_calls_and_files(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(
        "import ctypes\nfor number in range(30):\n    ctypes.CDLL(None).syscall(1000 + number)\n"
        "    open(f'{number}.txt', 'w')",
        "utf-8",
    )
    done = bactrian("sandbox", "run", "many.py", cwd=tmp_path)
    assert "call 1000 ×1" in done.stderr
    assert done.stderr.count(" and 20 more") == 2


MODULES = """
import sys
missing = []
for name in sorted(sys.stdlib_module_names):
    try: __import__(name)
    except ImportError: missing.append(name)
    except Exception: pass
print(*missing)
"""


def test_a_program_can_import_the_whole_standard_library(tier: Tier) -> None:
    outside, _ = start_python(f"import warnings; warnings.simplefilter('ignore')\n{MODULES}").finish()
    missing = run(MODULES, tier=tier).stdout.splitlines()[-1].split()
    assert set(missing) <= set(outside.decode().splitlines()[-1].split())


ASKER = """
import sys, tempfile
from bactrian.sandbox.programs import SandboxSession
from bactrian.sandbox.tiers import Unsafe
tempfile.tempdir = sys.argv[1]
with SandboxSession(tier=Unsafe()) as session:
    session.run("open('file', 'w').write('tea')")
    print("ready", flush=True)
    session.run("import time; time.sleep(60)")
"""


def test_a_killed_asker_leaves_no_scratch_folder(tmp_path: Path) -> None:
    """Without a sandbox, since the supervisor of one that root starts may not remove it: the next start does."""
    asker = start_python(ASKER, tmp_path)
    asker.wait_for_lines(1)
    assert [path.name for path in tmp_path.glob("*/*")] == ["file"]
    asker.kill()
    asker.finish()
    deadline = time.monotonic() + 30
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_bad_input(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    for arguments in (
        ["missing.py"],
        ["bytes.py"],
        ["bytes.py", "--tier", "none"],
        ["bytes.py", "--memory", "1"],
    ):
        done = bactrian("sandbox", "run", *arguments, cwd=tmp_path)
        assert done.returncode == 2, done
        assert "Traceback" not in done.stderr


def test_without_a_sandbox_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "touch.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    hide = "from bactrian.sandbox import programs; programs.TIERS = (); from bactrian.__main__ import main; main()"
    done = start_python(hide, "sandbox", "run", "touch.py", cwd=tmp_path)
    _, told = done.finish()
    assert done.returncode == 1
    assert b"no sandbox" in told
    assert not (tmp_path / "ran").exists()


def test_a_machine_without_bubblewrap_uses_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    from bactrian.sandbox import programs as module

    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    module.choose_tier.cache_clear()
    try:
        assert module.choose_tier() == LandlockOnly()
    finally:
        module.choose_tier.cache_clear()


def test_a_system_without_sandboxes_is_told_what_runs_programs_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bactrian.sandbox import programs as module

    monkeypatch.setattr("sys.platform", "darwin")
    module.choose_tier.cache_clear()
    try:
        with pytest.raises(SandboxError, match="Sandboxes need Linux") as caught:
            module.choose_tier()
        assert "BACTRIAN_TIER" in str(caught.value)
        assert "apt-get" not in str(caught.value)
    finally:
        module.choose_tier.cache_clear()
