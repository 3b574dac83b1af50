"""Sandboxes behind a command, and in containers."""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bactrian.errors import InputError, SandboxError
from bactrian.evaluate.code_judge import Judge
from bactrian.evaluate.problems import read_human_eval
from bactrian.sandbox.programs import SandboxSession, find_tier, run
from bactrian.sandbox.tiers import MIB, CommandTier, ContainerTier, Limits, read_tier
from tests.helpers.command import bactrian

pytestmark = pytest.mark.system

SERVE = (
    "from bactrian.sandbox.orders import provide_sandbox\n"
    "from bactrian.sandbox.tiers import TIERS\n"
    "provide_sandbox(TIERS)"
)
FAR = CommandTier(f"remote:{shlex.join((sys.executable, '-c', SERVE))}")
DOCKER = """#!{python}
# Stands in for docker: it checks the command line, and runs the command of the container here.
import os, sys
words = sys.argv[1:]
if words[0] == "kill":
    sys.exit(0)
image = words.index("tea/python:3")
options = words[1:image]
pairs = dict(zip(options, options[1:]))
assert words[0] == "run"
assert {{"--rm", "--interactive", "--read-only"}} <= set(options)
assert pairs["--network"] == pairs["--ipc"] == "none" and pairs["--cap-drop"] == "ALL" and pairs["--pull"] == "never"
assert pairs["--security-opt"] == "no-new-privileges" and not pairs["--user"].startswith("0")
assert int(pairs["--memory"]) == int(pairs["--memory-swap"]) and int(pairs["--pids-limit"]) < 100
assert not set(options) & {{"--privileged", "--volume", "-v", "--mount", "--pid", "--env-file"}}
assert pairs["--entrypoint"] == "python3"
{before}
# Under its own name: another python3 may come first on the path.
os.execv(sys.executable, [sys.executable, *words[image + 1:]])
"""


# Lets the kernel answer as one without Landlock does: a filter refuses its first call.
NO_LANDLOCK = """
import ctypes, struct
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filter))) == 0
"""


def provide_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str = "") -> None:
    program = folder / "docker"
    program.write_text(DOCKER.format(python=sys.executable, before=before), "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTier:
    provide_docker(tmp_path, monkeypatch)
    return ContainerTier("docker:tea/python:3")


def test_a_container_without_landlock_is_used_only_if_its_name_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide_docker(tmp_path, monkeypatch, NO_LANDLOCK)
    with pytest.raises(SandboxError, match="no Landlock") as caught:
        run("print('tea')", tier=ContainerTier("docker:tea/python:3"))
    assert "docker-bare:tea/python:3" in str(caught.value)
    outcome = run("print('tea')", tier=ContainerTier("docker-bare:tea/python:3"))
    assert (outcome.stdout, outcome.tier) == ("tea\n", "docker-bare:tea/python:3 (unsafe)")


@pytest.mark.slow
def test_a_program_behind_a_command_ends_as_it_does_here() -> None:
    outcome = run(
        "import sys\nprint('tea')\nprint(open('in.txt').read(), file=sys.stderr)\n"
        "open('out.txt', 'w').write('x' * 9)\nsys.exit(3)",
        {"in.txt": b"water"},
        tier=FAR,
        collect=100,
    )
    assert (outcome.ending, outcome.exit_code) == ("error", 3)
    assert (outcome.stdout, outcome.stderr) == ("tea\n", "water\n")
    assert outcome.files == {"in.txt": b"water", "out.txt": b"x" * 9}
    assert outcome.tier in (f"{FAR.name} (bubblewrap)", f"{FAR.name} (landlock)")
    refused = run("import socket\nsocket.socket()", tier=FAR)
    assert (refused.ending, dict(refused.refused)) == ("refused", {"socket": 1})
    assert run(["/bin/echo", "tea"], tier=FAR).stdout == "tea\n"


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        pytest.param("while True: pass", "time", marks=pytest.mark.slow),
        pytest.param("import time\ntime.sleep(60)", "time", marks=pytest.mark.slow),
        ("x = 'x' * (1 << 30)", "memory"),
        ("while True: print('tea' * 1000)", "output"),
        ("import os\nos.kill(os.getpid(), 9)", "killed"),
    ],
)
def test_limits_hold_behind_a_command(code: str, ending: str) -> None:
    limits = Limits(cpu=0.4, wall=1, memory=256 * MIB, output=100_000)
    outcome = run(code, limits=limits, tier=FAR)
    assert outcome.ending == ending
    assert len(outcome.stdout) <= 100_000


def test_a_session_behind_a_command_keeps_names_and_calls_actions() -> None:
    with SandboxSession(Limits(wall=20), {"price": {"tea": 3.5}.get}, tier=FAR) as session:
        assert session.run("total = price('tea') * 2").ending == "ok"
        assert session.run("print(total)").stdout == "7.0\n"
        session.run("def pair(x): return {x: (1, 2)}")
        assert session.call("pair", ("a",)).read_value() == {"a": (1, 2)}
        assert session.run("1 / 0").error == "ZeroDivisionError"
        assert session.run("while True: pass", cpu=0.3).ending == "time"
        assert session.run("open('a.txt', 'w').write('tea')").ending == "ok"
        assert [file.content for file in session.collect(10)] == [b"tea"]
        assert session.stop().cpu > 0.2
        assert [file.name for file in session.collect()] == ["a.txt"]


def test_a_container_is_given_nothing_but_its_limits(docker: ContainerTier) -> None:
    outcome = run("print(6 * 7)\nopen('a.txt', 'w').write('tea')", tier=docker, collect=10)
    assert (outcome.ending, outcome.stdout, outcome.files) == ("ok", "42\n", {"a.txt": b"tea"})
    assert outcome.tier == "docker:tea/python:3 (landlock)"
    refused = run("import socket\nsocket.socket()", tier=docker)
    assert refused.ending == "refused"


@pytest.mark.slow
def test_solutions_are_judged_in_containers(docker: ContainerTier) -> None:
    problem = read_human_eval()[0]
    with Judge(tier=docker) as judge:
        assert judge.judge(problem, problem.prompt + problem.canonical).kind == "passed"
        assert judge.judge(problem, problem.prompt + "    return 1").kind == "wrong"


@pytest.mark.slow
def test_a_solution_that_ends_its_sandbox_is_judged_and_does_not_stop_the_judging_of_others(
    docker: ContainerTier,
) -> None:
    problem = read_human_eval()[0]
    bare = ContainerTier("docker-bare:tea/python:3")
    with Judge(tier=bare) as judge:
        killed = judge.judge(problem, "import os\nos.kill(os.getppid(), 9)")
        assert (killed.kind, "lost" in killed.detail) == ("crashed", True)
        assert judge.judge(problem, problem.prompt + problem.canonical).passed


def frame(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


READY = frame('{"ready": true}')
REPORT = '{"ended": {"status": %s, "stopped": "", "cpu": 0, "memory": 0, "wall": 0, "refused": {}}}'


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"hello, who is there?",
        frame("[1, 2]"),
        frame('{"ready": 1}'),
        frame('{"ready": true, "tier": "unsafe"}') + frame(REPORT % "0"),
        READY + frame(REPORT % '"0"'),
        READY + frame(REPORT % str(1 << 70)),
        READY + frame('{"ended": {"status": 0}}'),
        READY + frame('{"output": "stdout", "data": "%%%"}'),
        READY + frame('{"files": [{"name": 3}]}'),
        READY + b"\xff\xff\xff\xff",
        READY,
    ],
    ids=repr,
)  # fmt: skip
def test_a_far_side_that_sends_nonsense_or_leaves_is_an_error_of_the_sandbox(said: bytes) -> None:
    program = f"import os\nos.write(1, {said!r})"
    with pytest.raises(SandboxError):
        run("print(1)", tier=CommandTier(f"remote:{shlex.join((sys.executable, '-c', program))}"))


def test_a_far_side_that_dies_in_a_block_ends_the_session() -> None:
    with SandboxSession(Limits(wall=20), tier=FAR) as session:
        session.run("x = 1")
        far = session._process._process  # type: ignore[attr-defined]
        os.kill(far.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="lost"):
            session.run("import time\ntime.sleep(9)")


@pytest.mark.slow
def test_nothing_is_left_behind_a_command_when_its_asker_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(
        "from bactrian.sandbox.tiers import Limits\nfrom bactrian.sandbox.programs import SandboxSession\n"
        "from bactrian.sandbox.tiers import CommandTier\n"
        f"with SandboxSession(Limits(wall=60), tier=CommandTier({FAR.name!r})) as session:\n"
        "    session.run('x = 1')\n"
        "    print(session._process._process.pid, flush=True)\n"
        "    session.run('import time\\ntime.sleep(60)')\n",
        "utf-8",
    )
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        far = int(asker.stdout.readline())
        asker.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{far}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{far}").exists()


@pytest.mark.parametrize("name", ["docker:-v", "remote:", "remote:'", "remote:nowhere", "tea"])
def test_a_tier_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        run("print(1)", tier=find_tier(name))


def test_an_image_has_a_default_name() -> None:
    assert read_tier("podman") == ContainerTier("podman:python:3.12-slim")
    assert read_tier("docker:registry:5000/tea:1") == ContainerTier("docker:registry:5000/tea:1")


def test_the_environment_names_the_tier_of_all_commands(tmp_path: Path) -> None:
    (tmp_path / "tea.py").write_text("print('tea')", "utf-8")
    words = ("sandbox", "run", "tea.py", "--json")
    here = f"remote:{sys.executable} -m bactrian sandbox serve"
    done = bactrian(*words, cwd=tmp_path, BACTRIAN_TIER=here)
    assert '"tier": "remote:' in done.stdout, done.stderr
    failed = bactrian(*words, cwd=tmp_path, BACTRIAN_TIER="remote:nowhere")
    assert failed.returncode == 2
    assert "nowhere is not installed" in failed.stderr


def test_the_far_side_contains_programs_by_itself(tmp_path: Path) -> None:
    for tier in ("remote:true", "podman", "unsafe"):
        refused = bactrian("sandbox", "serve", "--tier", tier, cwd=tmp_path)
        assert refused.returncode == 2
        assert "is not a tier of this computer" in refused.stderr


needs_podman = pytest.mark.skipif(
    "BACTRIAN_TEST_IMAGE" not in os.environ, reason="BACTRIAN_TEST_IMAGE names no image of podman"
)


@needs_podman
@pytest.mark.parametrize(
    ("kind", "inner", "error"), [("podman", "landlock", "PermissionError"), ("podman-bare", "unsafe", "")]
)
def test_a_program_runs_in_a_real_container(kind: str, inner: str, error: str) -> None:
    tier = ContainerTier(f"{kind}:{os.environ['BACTRIAN_TEST_IMAGE']}")
    code = (
        "import os, socket\nprint(os.listdir('.'), os.path.exists('/dev/shm'), os.getuid() >= 10_000)\n"
        "for action in (lambda: open('/x', 'w'), lambda: socket.create_connection(('127.0.0.1', 22), 1)):\n"
        "    try: action()\n    except OSError: print('refused')\n"
        "open('/etc/passwd')"
    )
    outcome = run(code, {"a": b""}, tier=tier)
    assert outcome.stdout == "['a'] False True\nrefused\nrefused\n"
    assert (outcome.tier, error in outcome.stderr) == (f"{tier.name} ({inner})", True)


STOP = """
import os, signal, time
for name in os.listdir('/proc'):
    try: name.isdigit() and int(name) != os.getpid() and os.kill(int(name), signal.SIGSTOP)
    except OSError: pass
time.sleep(60)
"""


@needs_podman
@pytest.mark.soak
def test_a_real_container_ends_with_its_asker_even_if_the_program_stops_its_supervisor() -> None:
    tier = ContainerTier(f"podman-bare:{os.environ['BACTRIAN_TEST_IMAGE']}")
    program = (
        "from bactrian.sandbox.programs import SandboxSession\nfrom bactrian.sandbox.tiers import ContainerTier\n"
        f"with SandboxSession(tier=ContainerTier({tier.name!r})) as session:\n"
        f"    print(session._process._launch.command[5], flush=True)\n    session.run({STOP!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        name = asker.stdout.readline().strip()
        time.sleep(1)
        assert has_container(name)
        asker.kill()
    deadline = time.monotonic() + 40
    while has_container(name) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not has_container(name)


def has_container(name: str) -> bool:
    done = subprocess.run(
        ["podman", "ps", "--all", "--quiet", "--filter", f"name={name}"], check=False, capture_output=True
    )
    return bool(done.stdout.strip())
