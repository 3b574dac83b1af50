"""Default sampling parameters of a session's agents."""

from __future__ import annotations

from bactrian.models.registry import find_traits
from bactrian.records.sampling import Sampling

MAX_MESSAGES = 40
"""The paper's limit on the messages of a session."""
SMALL_MAX_MESSAGES = 8
"""The built-in model's: it has nothing new to say after that."""

_PAPER = {
    "task_specifier": Sampling(temperature=1.4, max_tokens=256),
    "task_planner": Sampling(temperature=0.2, max_tokens=512),
    "user": Sampling(temperature=0.2, max_tokens=1024),
    "assistant": Sampling(temperature=0.2, max_tokens=2048),
    "critic": Sampling(temperature=0.2, max_tokens=512),
}

# Measured on the built-in model: lower temperatures copy the prompt, higher ones leave the topic. Its grammars close
# a turn before these many tokens.
_SMALL = {
    "task_specifier": Sampling(temperature=0.4, top_p=0.9, max_tokens=100),
    "task_planner": Sampling(temperature=0.3, top_p=0.9, max_tokens=160),
    "user": Sampling(temperature=0.4, top_p=0.9, max_tokens=110),
    "assistant": Sampling(temperature=0.4, top_p=0.9, max_tokens=300),
    "critic": Sampling(temperature=0.3, top_p=0.9, max_tokens=120),
}


_VARIED = 0.8
"""Temperature of proposals, as in CAMEL's example: at the paper's 0.2 they would be nearly equal. The built-in model's
replies differ enough at its own temperature."""


def default_sampling(agent: str, model: str, seed: int | None = None, *, varied: bool = False) -> Sampling:
    """Return the sampling parameters of ``agent`` (``task_specifier``, ``user``, ``critic`` …) on ``model``.

    ``varied`` is for a session in which each turn is chosen among several proposals. The temperatures are the
    paper's (section 4 and its code), the built-in model's are its own.
    """
    small = find_traits(model).small
    chosen = (_SMALL if small else _PAPER)[agent]
    warm = varied and agent in ("user", "assistant") and not small
    return Sampling(_VARIED if warm else chosen.temperature, chosen.top_p, chosen.max_tokens, seed)
