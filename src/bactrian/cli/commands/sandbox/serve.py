"""``bactrian sandbox serve``: the far side of a remote sandbox."""

from __future__ import annotations

from typing import Annotated

from bactrian.cli.options import declare_option
from bactrian.sandbox.remote.server import provide_sandbox
from bactrian.sandbox.run import find_tier
from bactrian.sandbox.tiers import TIERS


def serve(
    tier: Annotated[
        str | None,
        declare_option("--tier", "bubblewrap or landlock. Default: the strongest that works here."),
    ] = None,
) -> None:
    """Serve one sandbox through standard input and standard output, for `--tier 'remote:ssh HOST …'`."""
    provide_sandbox(0, 1, TIERS if tier is None else (find_tier(tier),))
