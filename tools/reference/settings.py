"""The page of settings: which options are not flags of a command, and where each of them is set instead."""

from __future__ import annotations

from collections.abc import Iterator

from bactrian.cli.help_form import load_verb, name_value
from bactrian.cli.settings import list_settings
from bactrian.cli.verbs import HELP

_HEAD = """# Settings

This page is written from the program. `play` and `generate` have flags for what most people change. The rest are settings: one at a
time by `--set KEY=VALUE`, or many in a file by `--set FILE.toml`, which has the tables of a [recipe](recipe-schema.md):

<!-- file: careful.toml -->
```toml
[critic]
role = "Head Gardener"
rounds = 2
criteria = "Which proposal costs least?"

[role_play]
word_limit = 30
user_description = "You have a small garden and little time."

[parameters]
temperature = 0.2

[parameters.assistant]
max_tokens = 800

[endpoint]
timeout = 120
```

```sh
bactrian play "Plan a garden" --set careful.toml --set critic.rounds=1 --max-messages 4
```

- A flag, or `--set KEY=VALUE`, takes precedence over the [environment](environment.md), and that over a file.
- `play` takes a key without its table where only one table has it: `--set word_limit=30`.
- The environment has every setting by the name of its old flag: `BACTRIAN_WORD_LIMIT=30`.
- A society has its own file, with the same keys in its stages and agents; [societies](../societies.md) shows it.
- Of a recipe, `--set` changes every key, not only those of this page. `endpoint` is the command's own table.

## Where each flag went

An old flag is refused, and the message names the setting with the value that was given.

| flag | `play` | `generate` | file of a society | Python | meaning |
|---|---|---|---|---|---|
"""
_AGENT = "`[[agents]]` "
_IN_SOCIETY = {
    "critic.": "`[stages.critic]` ",
    "role_play.assistant_description": f"{_AGENT}`description`",
    "role_play.user_description": f"{_AGENT}`description`",
    "tools.agent": f"{_AGENT}with `[agents.tools]`",
    "tools.": "`[agents.tools]` ",
    "parameters.": "`[agents.parameters]` ",
    "models.critic": "`[models]` `critic`",
}
_IN_PYTHON = {
    "critic.": "Critic({name}=…)",
    "role_play.assistant_description": 'assistant=Role("…", "DESCRIPTION")',
    "role_play.user_description": 'user=Role("…", "DESCRIPTION")',
    "role_play.": "{name}=…",
    "tools.agent": 'tools={"user": […]}',
    "tools.mcp": 'tools=["mcp:COMMAND"]',
    "tools.rounds": "tool_rounds=…",
    "tools.seconds": "tool_timeout=…",
    "parameters.": 'parameters={"{name}": …}',
    "models.": 'models={"{name}": …}',
    "endpoint.": "{name}=…",
}


def write_settings() -> str:
    """Return the page."""
    return _HEAD + "\n".join(_write_rows()) + "\n" + _write_flags()


def _write_rows() -> Iterator[str]:
    play, generate = (list_settings(load_verb(words).params) for words in ("play", "generate"))
    flags = {option.flag: key for key, option in generate.items()}
    for key, option in play.items():
        if not option.hidden or key.count(".") > 1:
            continue
        last = key.rpartition(".")[2]
        society = next((text for prefix, text in _IN_SOCIETY.items() if key.startswith(prefix)), "–")
        society = f"{society}`{last}`" if society.endswith(" ") else society
        python = next((text for prefix, text in _IN_PYTHON.items() if key.startswith(prefix)), "")
        python = python.replace("{name}", last)
        of_recipe = key.startswith(("critic.", "role_play.", "tools."))
        cells = (
            f"`{option.flag}`",
            f"`{key}={'true' if option.is_flag else '{KEY=VALUE}' if last == 'body' else name_value(option)}`",
            f"`{key}`" if of_recipe or option.flag in flags else "a flag" if key == "endpoint.price" else "–",
            society,
            f"`{python}`" if python else "–",
            option.help or "",
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _write_flags() -> str:
    keys = "\n".join(f"| `--{flag}` | `{key}` |" for flag, key in HELP["flags"]["play"].items())
    return f"""
Those of one agent are in a table of its own: `--assistant-temperature` is `parameters.assistant.temperature`. The agents are
`assistant`, `user`, `task` and `critic`, and `lister` in a run.

## Flags that a file may set, too

| flag of `play` | key |
|---|---|
{keys}
"""
