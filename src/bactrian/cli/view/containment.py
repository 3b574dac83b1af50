"""What each sandbox of this computer contains, for ``bactrian doctor --sandbox``."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bactrian.cli.terminal.console import to_printable
from bactrian.errors import SandboxError
from bactrian.sandbox.probes import Bait, Probe, ProbeResult, load_probes, provide_bait, run_probe
from bactrian.sandbox.programs import try_tier
from bactrian.sandbox.tiers import TIERS, Tier

_WORKERS = 2


def try_tiers(tiers: Sequence[Tier] = TIERS) -> int:
    """Run the hostile programs on each tier and print which it contains. Return 0 if the first tier contains all."""
    codes: list[int] = []
    with provide_bait() as bait:
        for tier in tiers:
            fault = try_tier(tier)
            if fault is None:
                codes.append(_try_programs(tier, bait))
            else:
                print(f"✗ {tier.name}: does not work here. {to_printable(fault.what)} {fault.next or ''}")
    if not codes:
        print("✗ No sandbox works on this computer, so code of models is not run.")
        return 1
    return codes[0]


def _try_programs(tier: Tier, bait: Bait) -> int:
    probes = load_probes()

    def attempt(probe: Probe) -> ProbeResult:
        try:
            return run_probe(probe, tier, bait)
        except SandboxError as error:
            return ProbeResult(probe, held=False, how=error.what)

    with ThreadPoolExecutor(_WORKERS) as pool:
        results = list(pool.map(attempt, probes))
    expected = [result for result in results if tier.name not in result.probe.beyond]
    held = sum(result.held for result in expected)
    print(
        f"{'✓' if held == len(expected) else '✗'} {tier.name} contains {held} of {len(probes)} hostile programs"
    )
    for result in results:
        beyond = tier.name in result.probe.beyond and not result.held
        mark = "✓" if result.held else "·" if beyond else "✗"
        how = "this tier does not contain it" if beyond else to_printable(result.how)
        print(f"  {mark} {result.probe.name}: {result.probe.tries} ({how})")
    return 0 if held == len(expected) else 1
