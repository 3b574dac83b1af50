"""Programs that speak in the place of the interpreter inside hold up nobody and fill no memory outside."""

from __future__ import annotations

import resource
import struct
from pathlib import Path

import pytest

from bactrian.evaluate.code_judge import Judge
from bactrian.evaluate.problems import Problem
from bactrian.sandbox.inside.values import FrameReader, Unsupported, decode_value, unpack_frame
from bactrian.sandbox.programs import SandboxSession
from bactrian.sandbox.tiers import Limits, Tier

pytestmark = pytest.mark.system

# The channel of the interpreter inside, taken over.
CHANNEL = """
import os, socket, stat, struct, time
def find():
    for handle in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(handle).st_mode): return socket.socket(fileno=handle)
        except OSError: continue
channel = find()
def frame(body): return struct.pack('>I', len(body)) + body
"""
ACTION = """b'{"action": "%s", "arguments": ["t"], "keywords": ["d"]}'"""
FLOODS = {
    "many small messages": "while True: channel.sendall(frame(b'{}') * 5000)",
    "many actions": f"while True: channel.sendall(frame({ACTION} % b'x') * 1000)",
    "actions with long names": f"while True: channel.sendall(frame({ACTION} % (b'x' * 5000)))",
    "actions without end whose answers are not read": f"while True: channel.sendall(frame({ACTION} % b'large'))",
    "a length of four gigabytes": "channel.sendall(b'\\xff' * 1000)\ntime.sleep(60)",
    "a message that never ends": "channel.sendall(struct.pack('>I', 1 << 20))\n"
    "while True: channel.sendall(b' '); time.sleep(0.01)",
    "nothing more": "channel.close()\ntime.sleep(60)",
    "a report of its own end": "channel.sendall(frame(b'{\"ended\": {}}'))\ntime.sleep(60)",
    "millions of lists": "body = b'{\"x\": [' + b'[],' * 2_700_000 + b'[]]}'\n"
    "while True: channel.sendall(frame(body))",
    "brackets without end": "channel.sendall(frame(b'[' * 4_000_000))\ntime.sleep(60)",
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_session_and_takes_little_memory(name: str, tier: Tier) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with SandboxSession(Limits(cpu=0.2, wall=0.3), {"large": lambda: "x" * 100_000}, tier=tier) as session:
        outcome = session.run(CHANNEL + FLOODS[name])
        assert outcome.ending != "ok" or outcome.unsupported
        assert session.ended or outcome.unsupported
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


PRIME = (1 << 61) - 1  # Integers that differ by it have one hash
COLLIDING = "b','.join(b'%d' % (((1 << 61) - 1) * number) for number in range(1, 40_000))"


def test_keys_that_were_made_to_collide_are_refused() -> None:
    collide = [PRIME * number for number in range(1, 1000)]
    for content in (["s", *collide], ["f", *collide], ["d", *([key, 1] for key in collide)]):
        with pytest.raises(Unsupported, match="one hash"):
            decode_value(content)
    assert decode_value(["s", *range(1000)]) == set(range(1000))


@pytest.mark.parametrize(
    "forged",
    [
        f"""b'{{"done": true, "value": ["s",' + {COLLIDING} + b']}}'""",
        pytest.param(
            """b'{"done": true, "value": ["l"' + b',1' * 3_000_000 + b']}'""", marks=pytest.mark.slow
        ),
        """b'{"done": true, "value": NaN}'""",
        """b'{"done": true, "value": ["b", "%"]}'""",
        """b'{"done": false, "error": "' + b'x' * 3_000_000 + b'"}'""",
        """b'{"done": true, "unsupported": "' + b'x' * 3_000_000 + b'"}'""",
    ],
    ids=["colliding keys", "millions of numbers", "not a number", "no bytes", "a long error", "a long type"],
)
def test_a_judge_is_not_held_up_by_a_forged_answer(forged: str, tmp_path: Path) -> None:
    problem = Problem("own", "", ("f",), "assert f(0) == 1")
    cheat = f"{CHANNEL}def f(x):\n    channel.sendall(frame({forged}))\n    time.sleep(60)\n"
    with Judge(Limits(cpu=2, wall=5), patience=10) as judge:
        verdict = judge.judge(problem, cheat)
        assert verdict.kind not in ("passed", "judge_error")
        assert len(verdict.detail) < 3000
        assert judge.judge(problem, "def f(x): return 1").passed


def test_a_message_that_is_too_large_or_no_object_is_refused() -> None:
    with pytest.raises(Unsupported, match="a message of 11 bytes"):
        FrameReader(10).add(struct.pack(">I", 11))
    for body in (b"[1]", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(Unsupported, match="garbled"):
            unpack_frame(body)
