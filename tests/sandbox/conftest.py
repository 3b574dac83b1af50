"""The tiers of this computer."""

from __future__ import annotations

import os

import pytest

from bactrian.sandbox.programs import try_tier
from bactrian.sandbox.tiers import TIERS, Tier
from tests.helpers.sandbox import HAS_SANDBOX


@pytest.fixture(scope="session", autouse=True)
def linux() -> None:
    """Skip everything on other systems."""
    if not HAS_SANDBOX:
        pytest.skip("sandboxes need Linux")


@pytest.fixture(scope="session", params=TIERS, ids=lambda tier: tier.name)
def tier(request: pytest.FixtureRequest) -> Tier:
    """Each tier that works here. Where BACTRIAN_REQUIRE_SANDBOX is set, as in CI, each has to."""
    tier: Tier = request.param
    fault = try_tier(tier)
    if fault is not None:
        message = f"{tier.name} does not work here: {fault}"
        if os.environ.get("BACTRIAN_REQUIRE_SANDBOX"):
            pytest.fail(message)
        pytest.skip(message)
    return tier
