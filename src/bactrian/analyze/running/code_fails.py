"""The behaviour ``code_fails``: a solution whose Python raises an exception when it is run.

It is detected only if requested, because detecting it runs code of a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bactrian.analyze.running.programs import run_solutions
from bactrian.records.finding import LONGEST_QUOTE, Finding
from bactrian.records.session import Session
from bactrian.sandbox.tiers import Tier

CODE = "code_fails"
DEFINITION = (
    "Code fails: the Python of a solution raises an exception when it is run in a sandbox, after that of earlier"
    " solutions.\n\nNo failure: code that needs a package, a file, input, the network or more time."
)


@dataclass(frozen=True, slots=True)
class CodeRunner:
    """Runs the code of solutions and finds those that fail."""

    tier: Tier | None = None
    """Default: the strongest that works here."""
    code: str = CODE

    def detect(self, session: Session) -> Iterator[Finding]:
        """Yield a finding for each turn whose code fails.

        Raises:
            SandboxError: no sandbox works here.
        """
        for one in run_solutions(session, self.tier):
            if one.ending == "fails":
                quote = one.line or one.reason
                yield Finding(session.id, one.turn, CODE, 0.9, quote[:LONGEST_QUOTE], one.reason[:500])
