"""Examples of every command, for its help."""

from __future__ import annotations

EXAMPLES = {
    "play": (
        "bactrian play",
        'bactrian play "Plan a garden" --assistant Gardener --user "Home Owner" -m ollama:llama3.2',
        'bactrian play "Write a poem" --critic human',
    ),
    "generate": (
        "bactrian generate math -r math.db -n 8 --forecast",
        "bactrian generate ai-society -r society.db -m openai:gpt-4o-mini --sample 100 --budget 2",
    ),
    "runs": ("bactrian runs", "bactrian runs experiments --json"),
    "list": ("bactrian list",),
    "status": ("bactrian status society.db",),
    "show": (
        "bactrian show society.db --ending task_done -n 3 --full",
        "bactrian show society.db 001_002_003 --format html > page.html",
    ),
    "resume": ("bactrian resume society.db", "bactrian resume plays 3f9a --max-messages 80"),
    "failures": ("bactrian failures society.db",),
    "analyze": (
        "bactrian analyze society.db --report society.html",
        "bactrian analyze small.db large.db",
    ),
    "export": (
        "bactrian export society.db --format messages -o train.jsonl --only ending=task_done",
        "bactrian export society.db --format hf -o data --split validation=0.05 --drop finding=role_flip",
    ),
    "explore": ("bactrian explore society.db --open",),
    "import": ("bactrian import ai_society_chat.tar.gz -r camel.db",),
    "verify": ("bactrian verify society.db",),
    "recover": ("bactrian recover society.db -o recovered.db",),
    "evaluate": ("bactrian evaluate humaneval --help",),
    "evaluate humaneval": ("bactrian evaluate humaneval -m openai:gpt-4o-mini -n 10 -k 1,10 --budget 1",),
    "evaluate agents": (
        "bactrian evaluate agents society.db --judge openai:gpt-4o --judge anthropic:claude-sonnet-4-5 --forecast",
    ),
    "evaluate extract": ("bactrian evaluate extract society.db",),
    "evaluate vote": ("bactrian evaluate vote society.db",),
    "evaluate invite": (
        "bactrian evaluate invite society.db heron tern",
        "bactrian evaluate invite society.db -n 20 --address http://lab-machine:8642 > links.txt",
    ),
    "evaluate pairwise": ("bactrian evaluate pairwise openai:gpt-4o-mini local --questions math --forecast",),
    "behaviours": ("bactrian behaviours", "bactrian behaviours show role_flip"),
    "behaviours show": ("bactrian behaviours show role_flip",),
    "behaviours label": ("bactrian behaviours label society.db --behaviour flake_reply -n 50",),
    "behaviours train": ("bactrian behaviours train society.labels.jsonl",),
    "evaluate emergence": ("bactrian evaluate emergence --known-answers",),
    "evaluate questions": ("bactrian evaluate questions math -m openai:gpt-4o-mini",),
    "train": (
        "bactrian train small --run society.db --forecast",
        (
            "bactrian train emergence --run ai-society=society.db --run code=code.db --run math=math.db "
            "--run science=physics.db -o tuned"
        ),
        "bactrian train camel-7b --show > mine.toml",
    ),
    "sandbox": ("bactrian sandbox run program.py",),
    "sandbox run": (
        "bactrian sandbox run program.py --cpu 5 --json",
        "bactrian sandbox run program.py --tier docker:python:3.12-slim",
    ),
    "sandbox serve": ("bactrian sandbox run program.py --tier 'remote:ssh worker bactrian sandbox serve'",),
    "roles": ('bactrian roles "Plan a garden" -n 3', 'bactrian roles "Plan a garden" --json > roles.jsonl'),
    "recipes": ("bactrian recipes", "bactrian recipes show math"),
    "recipes show": ("bactrian recipes show math > mine.toml",),
    "societies": ("bactrian societies", "bactrian societies show panel"),
    "societies show": ("bactrian societies show panel > mine.toml",),
    "models": ("bactrian models", "bactrian models --json"),
    "prompts": ("bactrian prompts", "bactrian prompts show ai-society"),
    "prompts show": ("bactrian prompts show ai-society",),
    "doctor": ("bactrian doctor -m ollama:llama3.2", "bactrian doctor --sandbox"),
    "help": ("bactrian help generate", "bactrian help recipes show"),
}
"""Command lines by the words of their command."""
