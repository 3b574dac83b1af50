"""A session: state between blocks, actions of the trusted side, limits of a block."""

from __future__ import annotations

import pytest

from bactrian.errors import SandboxError
from bactrian.sandbox.inside.values import Unsupported
from bactrian.sandbox.programs import SandboxSession
from bactrian.sandbox.tiers import MIB, Limits, Tier

pytestmark = pytest.mark.system

SMALL = Limits(cpu=20, wall=20, memory=512 * MIB)


def test_blocks_share_their_names(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        assert session.run("total = 1").ending == "ok"
        session.run("total += 1\nprint(total)")
        assert session.run("import sys; print(total); print('bad', file=sys.stderr)").stdout == "2\n"


def test_an_error_is_shown_and_the_session_goes_on(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        outcome = session.run("x = 1\nx.y", "step.py")
        assert (outcome.ending, outcome.error) == ("error", "AttributeError")
        assert 'File "step.py", line 2' in outcome.trace
        assert session.run("raise SystemExit(3)").error == "SystemExit"
        assert session.run("print(x)").stdout == "1\n"


def test_actions_run_outside(tier: Tier) -> None:
    asked: list[tuple[str, int]] = []

    def price(name: str, count: int = 1) -> dict[str, object]:
        asked.append((name, count))
        return {"total": 3 * count, "names": (name,)}

    with SandboxSession(SMALL, {"price": price}, tier=tier) as session:
        outcome = session.run("print(price('tea', count=2))")
        assert outcome.stdout == "{'total': 6, 'names': ('tea',)}\n"
        assert asked == [("tea", 2)]
        assert "RuntimeError: TypeError" in session.run("price()").trace
        assert session.run("price(object())").error == "Unsupported"
        assert session.run("print(price('coffee')['total'])").stdout == "3\n"


def test_a_block_that_uses_its_time_is_interrupted_and_the_session_goes_on(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        session.run("kept = 5")
        assert session.run("while True: pass", cpu=0.2).ending == "time"
        assert session.run("print(kept)").stdout == "5\n"


def test_a_block_that_resists_ends_the_session(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        resists = "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\nwhile True: pass"
        assert session.run(resists, cpu=0.1, wall=0.3).ending == "time"
        assert session.ended
        with pytest.raises(SandboxError, match="has ended"):
            session.run("1")


def test_a_block_that_ends_the_process_leaves_its_files(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        outcome = session.run(
            "open('a.txt', 'w').write('1')\nprint('last', flush=True)\nimport os; os._exit(0)"
        )
        assert outcome.ending == "killed"
        assert outcome.stdout == "last\n"
        assert [(file.name, file.content) for file in session.collect(10)] == [("a.txt", b"1")]


def test_calls_give_plain_values_only(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        session.run("def f(x): return {'x': x}\ndef g(): return f")
        assert session.call("f", ([1, (2,)],)).read_value() == {"x": [1, (2,)]}
        assert session.call("g").unsupported == "function"
        assert session.call("h").missing
        with pytest.raises(Unsupported):
            session.call("f", (object(),))


def test_the_memory_of_a_session_is_limited(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as session:
        assert session.run("x = bytes(1 << 30)").ending == "memory"
        assert session.run("print('on')").stdout == "on\n"


def test_two_sessions_know_nothing_of_each_other(tier: Tier) -> None:
    with SandboxSession(SMALL, tier=tier) as one, SandboxSession(SMALL, tier=tier) as other:
        one.run("x = 1\nopen('mine', 'w')")
        assert other.run("x").error == "NameError"
        assert other.collect() == []
