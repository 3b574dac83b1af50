"""How the agents of a session sample, unless the user says otherwise."""

from __future__ import annotations

from bactrian.records.sampling import Sampling

MAX_MESSAGES = 40
"""The paper's limit on the messages of a session."""
SMALL_MAX_MESSAGES = 12
"""The built-in model's: after that it has said what it can say."""

_PAPER = {
    "task_specifier": Sampling(temperature=1.4, max_tokens=256),
    "task_planner": Sampling(temperature=0.2, max_tokens=512),
    "user": Sampling(temperature=0.2, max_tokens=1024),
    "assistant": Sampling(temperature=0.2, max_tokens=2048),
}

# Measured on the built-in model: colder copies its prompt, warmer leaves the topic. Its grammars close a turn
# before these many tokens.
_SMALL = {
    "task_specifier": Sampling(temperature=0.4, top_p=0.9, max_tokens=100),
    "task_planner": Sampling(temperature=0.3, top_p=0.9, max_tokens=160),
    "user": Sampling(temperature=0.4, top_p=0.9, max_tokens=110),
    "assistant": Sampling(temperature=0.4, top_p=0.9, max_tokens=300),
}


def manners(agent: str, model: str, seed: int | None = None) -> Sampling:
    """Sampling parameters of ``agent`` (``task_specifier``, ``task_planner``, ``user``, ``assistant``) on ``model``.

    The temperatures are the paper's (section 4 and its code), the built-in model's are its own.
    """
    chosen = (_SMALL if model == "local" else _PAPER)[agent]
    return Sampling(chosen.temperature, chosen.top_p, chosen.max_tokens, seed)
