"""The options of conversations and of runs. Each is declared here, once.

Everything else comes from the declaration: the keyword arguments of :func:`bactrian.play` and :func:`bactrian.generate`
(which pyright checks and an editor completes), the checks of their types and limits, the flags of the command line with
their environment variables and their help, the stored command, and the pages of the reference.

To add an option, add a field. A field of :class:`SamplingSpec` is a sampling parameter that every agent has.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import BaseMetadata, Ge, GroupedMetadata, Gt, Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from bactrian.errors import InputError
from bactrian.records.session import Role
from bactrian.records.turn import CRITERIA, CriticSettings, Sampling, Unreadable, read_search


@dataclass(frozen=True, slots=True)
class Option(GroupedMetadata):
    """What an annotation says about an option; its type is that of the annotation.

    A text behind it is its help where it stands: ``Annotated[bool, JSON, "Write the score as JSON."]``.
    """

    flag: str  # as --name or --name/--no-name; the variable of the environment follows from it
    help: str = ""
    short: str = ""
    min: float | None = None
    above: float | None = None
    max: float | None = None
    default: Any = None  # False for a bool; unused where a parameter or a dataclass has a default
    shown: str = ""  # what the help shows as the default, if not the default itself
    metavar: str = ""  # what stands for the value in the help, where it is not what all commands have
    again: str = ""  # what to do instead of giving the option twice
    joint: str = ""  # between the values of an option that may be repeated, which are one text
    variable: bool = True  # False if only a person at the command line may set it

    def __iter__(self) -> Iterator[BaseMetadata]:
        """Yield the limits in the form that pydantic reads."""
        if self.min is not None:
            yield Ge(self.min)
        if self.above is not None:
            yield Gt(self.above)
        if self.max is not None:
            yield Le(self.max)


# Names that several commands share, each with a sentence of its own where it stands.


ADDRESS = Option("--address", "Where people reach `bactrian explore`.")
BEHAVIOUR = Option("--behaviour")
COUNT = Option("--count", min=1, max=1000)
CPU = Option("--cpu", "Seconds of CPU time.", min=0.1, default=10.0)
EXTRACTOR = Option("--extractor")
FORECAST = Option("--forecast", "Estimate the cost, without any request.")
FORMAT = Option("--format")
JSON = Option("--json", "Write JSON.")
JUDGE = Option("--judge")
LIMIT = Option("--limit", short="-n", min=1)
MARK = Option("--mark")
MCP = Option("--mcp", "Command line of an MCP server whose tools an agent may call. Can be repeated.")
MODEL = Option("--model", "Model to ask; see `bactrian models`.")
ONLY = Option("--only")
OUT = Option("--out")
LICENSE = Option("--license", "", default="")
OVERWRITE = Option("--overwrite", "Replace existing files.")
PROCESSES = Option("--processes", min=1)
PROMPTS = Option("--prompts", "Prompt pack: a name or a .toml file. Default: ai-society, or a small one.")
QUIET = Option("--quiet", "Show no progress.")
REPORT = Option("--report", "Write the report as one file: .html, .pdf (with Chromium) or .json.")
RUN = Option("--run")
REPLY_LENGTH = Option(
    "--reply-length", "Longest reply, in tokens. Default: as long as the model likes.", min=1
)
JUDGE_CUT = Option("--judge-cut", "Judge solutions that are cut at their longest length, too.")
RUN_CODE = Option("--run-code", "Let embodied assistants run what they write, in the sandbox.")
SOCIETY = Option("--society")
SAMPLE = Option("--sample", short="-n", min=1)
SEED = Option("--seed", "Seed of the sampling.")
SET = Option("--set")
TEMPERATURE = Option("--temperature", "Sampling temperature of all agents.")
TIER = Option("--tier")
TOOLS = Option(
    "--tools",
    "Python functions that an agent may call: FILE.py or FILE.py:NAME,NAME; `image` lets an embodied one draw. "
    "Can be repeated.",
)
WITHDRAW = Option("--withdraw")
YES = Option("--yes", "Let embodied agents run code without asking first.")


# Sampling.


Nothing = Literal["none"]
"""Instead of a value: the parameter is left out, and the model's own default applies."""
_Text = Annotated[str, Field(min_length=1)]
_OURS = frozenset({"model", "messages", "stream", "n", "tools", "tool_choice", "response_format"})


class SamplingSpec(BaseModel):
    """Parameters of an agent; those that are not given stay as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: Annotated[
        Annotated[float, Field(ge=0, le=5, strict=True)] | Nothing | None,
        TEMPERATURE,
    ] = None
    top_p: Annotated[
        Annotated[float, Field(gt=0, le=1, strict=True)] | Nothing | None,
        Option("--top-p", "Nucleus sampling of all agents."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Field(gt=0, strict=True)] | Nothing | None,
        Option("--reply-length", "Maximum length of the replies of all agents, in tokens."),
    ] = Field(default=None, description="Longest reply, in tokens.")
    stop: Annotated[
        tuple[_Text, ...] | Nothing | None,
        Option("--stop", "Text that ends the replies of all agents."),
    ] = Field(default=None, description="Texts that end a reply.")
    seed: Annotated[Annotated[int, Field(strict=True)] | Nothing | None, SEED] = None
    reasoning_effort: Annotated[
        _Text | None,
        Option("--reasoning-effort", "Reasoning effort of all agents: usually low, medium or high."),
    ] = Field(default=None, description="How long to think: mostly low, medium or high.")
    body: Annotated[
        dict[str, Any] | None,
        Option("--body", "Further fields of all requests, as in 'top_k=40'. Can be repeated."),
    ] = Field(default=None, description="Further fields of the request's body.")

    @field_validator("stop", mode="before")
    @classmethod
    def _accept_a_single_text(cls, value: object) -> object:
        return (value,) if isinstance(value, str) and value != "none" else value

    @field_validator("body")
    @classmethod
    def _refuse_fields_of_the_protocol(cls, body: dict[str, Any] | None) -> dict[str, Any] | None:
        if taken := sorted(_OURS & (body or {}).keys()):
            raise ValueError(f"{taken[0]!r} cannot be set here")
        return body

    def apply(self, sampling: Sampling) -> Sampling:
        """Return ``sampling`` changed by these parameters."""
        values = self.model_dump(exclude_none=True)
        extra = {**sampling.extra, **values.pop("body", {})}
        values = {name: None if value == "none" else value for name, value in values.items()}
        if "stop" in values:
            values["stop"] = tuple(values["stop"] or ())
        # A parameter that only an endpoint knows goes into the body of the request as it is.
        known = {field.name for field in fields(Sampling)}
        extra |= {name: value for name, value in values.items() if name not in known and value is not None}
        return replace(
            sampling, **{name: value for name, value in values.items() if name in known}, extra=extra
        )


# A conversation.


@dataclass(frozen=True, slots=True)
class Critic:
    """A third agent that chooses each turn among several proposals (paper, section 3.2).

    Example:
        >>> import bactrian as bt
        >>> bt.Critic("Head Gardener", proposals=3).proposals
        3
    """

    role: Annotated[
        str,
        Option(
            "--critic",
            "Role that chooses each turn among several proposals; human stands for you.",
            again="Give one; several critics are a society: --society panel, or a file of your own.",
        ),
    ]
    proposals: Annotated[
        int,
        Option(
            "--proposals",
            "Proposals for each turn; one is for a person to take, edit or replace.",
            min=1,
            max=100,
        ),
    ] = 3
    rounds: Annotated[
        int,
        Option(
            "--critic-rounds",
            "Maximum rounds of proposals for a turn; the critic's feedback starts another round.",
            min=1,
        ),
    ] = 1
    criteria: Annotated[
        str, Option("--criteria", "Criteria of the choice.", shown="how well the task is done")
    ] = CRITERIA
    search: Annotated[
        str | None,
        Option("--search", "Search ahead: the number of lines to keep, and of turns to look ahead."),
    ] = None
    """``beam:WIDTHxDEPTH``; None for no search."""
    unreadable: Annotated[
        Unreadable,
        Option("--unreadable", "After two unreadable choices: take the first proposal, or fail."),
    ] = "first"

    def settings(self) -> CriticSettings:
        """Return the critic as stored in a session.

        Example:
            >>> bt.Critic("Head Gardener", search="beam:3x2").settings().depth
            2

        Raises:
            InputError: a number is below 1, or the search does not fit.
        """
        if min(self.proposals, self.rounds) < 1 or self.proposals > 100:
            raise InputError(
                "A critic has 1 to 100 proposals and at least one round.",
                option="critic",
                next="Give numbers within these limits.",
            )
        width, depth = 1, 1
        if self.search is not None:
            try:
                width, depth = read_search(self.search)
            except ValueError as error:
                message = str(error)
                raise InputError(
                    f"{message[:1].upper()}{message[1:]}.",
                    option="critic.search",
                    next="Write beam:WIDTHxDEPTH, as in beam:2x3.",
                ) from error
            if (width, depth) != (1, 1) and self.rounds > 1:
                raise InputError(
                    "A search has one round of proposals a turn.",
                    option="critic.rounds",
                    next="Leave it out.",
                )
        return CriticSettings(
            self.role, self.proposals, self.rounds, self.criteria, self.unreadable, width, depth
        )


# Options that several functions and commands have.


BaseUrl = Annotated[
    str | None,
    Option(
        "--base-url",
        "Endpoint of openai:NAME. Can be repeated, for several servers of the same model.",
        shown="OPENAI_BASE_URL",
        joint=",",
    ),
]
Budget = Annotated[
    float | None, Option("--budget", "Stop before the run costs more than this many US dollars.", min=0)
]
Concurrency = Annotated[
    int | None,
    Option(
        "--concurrency",
        "Maximum number of requests at once, each of another conversation. Default: 64; 4 on a local model.",
        min=1,
    ),
]
Language = Annotated[str | None, Option("--language", "Language of the conversation.")]
MaxTokens = Annotated[
    int | None, Option("--max-tokens", "Stop before the run uses more than this many tokens.", min=1)
]
MaxWait = Annotated[
    float,
    Option(
        "--max-wait",
        "Longest wait that an endpoint may ask for, in seconds; three times as long if it fails.",
        min=0,
        default=600.0,
    ),
]
Processes = Annotated[
    int | None,
    replace(PROCESSES, shown="1"),
    "Play the conversations in N processes of this computer, where code, critics or models in them need more cores.",
]
RetryFailed = Annotated[bool, Option("--retry-failed", "Retry failed jobs and incomplete lists.")]
Seed = Annotated[int | None, SEED]
SessionIds = Annotated[
    bool,
    Option(
        "--session-ids/--no-session-ids",
        "Tell servers which requests belong to one conversation, for their prefix cache.",
        default=True,
    ),
]
AskTelemetry = Annotated[
    bool | None,
    Option(
        "--telemetry/--no-telemetry",
        "Report calls to OpenTelemetry, without their content. Default: yes if OTEL_EXPORTER_OTLP_ENDPOINT is set.",
    ),
]
Tier = Annotated[
    Literal["flex"] | None,
    Option(
        "--tier",
        "Service tier: flex costs half at OpenAI, Azure and Gemini, and is slower. Groq has it at its usual price.",
        shown="the usual one",
        variable=False,  # BACTRIAN_TIER is that of the sandbox
    ),
]
Timeout = Annotated[
    float,
    Option(
        "--timeout",
        "Longest wait for a reply, in seconds.",
        above=0,
        default=600.0,
        shown="600; 900 with --tier flex",
    ),
]
TokenPrice = Annotated[
    str | None,
    Option("--price", "US dollars per million tokens, prompt/completion[/cached].", shown="a table"),
]
Window = Annotated[int | None, Option("--window", "Context window of openai:NAME, in tokens.", min=1)]


BatchWait = Annotated[
    float | None,
    Option(
        "--batch-wait",
        "With --batch: stop when no batch has ended for this many seconds; the same command collects them later.",
        min=0,
        shown="as long as it takes",
    ),
]


class EndpointOptions(TypedDict, total=False):
    """How a model is reached, and what its tokens cost."""

    base_url: BaseUrl
    window: Window
    timeout: Timeout
    """A synchronous function of your own cannot be interrupted: it runs on in its thread, and its answer is ignored."""
    max_wait: MaxWait
    session_ids: SessionIds
    tier: Tier
    price: TokenPrice
    telemetry: AskTelemetry


class SamplingOptions(TypedDict, total=False):
    """How the models choose their words."""

    seed: Seed
    parameters: Mapping[str, Any]
    """Sampling parameters: ``{"temperature": 0.2, "assistant": {"max_tokens": 500}}``; ``"none"`` omits a parameter."""


# A conversation.


MaxMessages = Annotated[
    int | None,
    Option(
        "--max-messages",
        "Maximum number of messages. Default: 40, or 8 if the built-in model plays both.",
        min=1,
    ),
]


class SocietyOptions(EndpointOptions, total=False):
    """Options of a society, which a role-play has, too."""

    seed: Seed
    budget: Annotated[Budget, "Stop before this command costs more than this many US dollars."]
    max_messages: MaxMessages
    protocol: Annotated[
        Literal["free", "enforced"] | None,
        Option(
            "--protocol",
            "Whether grammars enforce the protocol. Default: enforced if the built-in model plays both, else free.",
        ),
    ]
    language: Language
    prompts: Annotated[str | None, PROMPTS]


class PlayOptions(SocietyOptions, SamplingOptions, total=False):
    """Keyword options of :func:`play` and :func:`stream`."""

    specify: Annotated[
        bool | None,
        Option(
            "--specify/--no-specify",
            "Make the idea concrete first. Default: yes; no for your own idea on the built-in model.",
        ),
    ]
    word_limit: Annotated[int, Option("--word-limit", "Word limit of the specified task.", min=1, default=50)]
    plan: Annotated[bool, Option("--plan", "Divide the task into subtasks first.")]
    tool_rounds: Annotated[
        int,
        Option("--tool-rounds", "Maximum replies of a turn that call tools.", min=1, max=100, default=8),
    ]
    tool_timeout: Annotated[
        float, Option("--tool-timeout", "Time limit of one call, in seconds.", above=0, default=30.0)
    ]
    embodied: Annotated[
        str | Role | None,
        Option(
            "--embodied",
            "Role that acts by writing Python, which runs in a sandbox: alone, or for a user, as the role that solves.",
        ),
    ]


class PlayArguments(PlayOptions, total=False):
    """The types of all arguments of :func:`play` that are not objects of its own."""

    idea: str | None
    assistant: str | Role | None
    user: str | Role | None
    run: str | Path | None


class AgentModels(TypedDict, total=False):
    """A model for each agent, on the command line. Python takes them as ``model`` and ``models``."""

    model: Annotated[
        str | None,
        MODEL,
        "Model of every agent; see `bactrian models`. Default: the recipe's, local, or the assistant's if both "
        "sides have one.",
    ]
    assistant_model: Annotated[str | None, Option("--assistant-model", "Model of the AI assistant.")]
    user_model: Annotated[str | None, Option("--user-model", "Model of the AI user.")]
    task_model: Annotated[str | None, Option("--task-model", "Model of the task specifier and planner.")]
    critic_model: Annotated[str | None, Option("--critic-model", "Model of the critic.")]
    list_model: Annotated[str | None, Option("--list-model", "Model that generates lists.")]


# A run.


class GenerateOptions(EndpointOptions, SamplingOptions, total=False):
    """Keyword options of :func:`generate`."""

    concurrency: Concurrency
    processes: Processes
    max_tokens: MaxTokens
    requests_per_minute: Annotated[
        float | None,
        Option("--requests-per-minute", "Maximum number of requests per minute.", above=0),
    ]
    tokens_per_minute: Annotated[
        float | None, Option("--tokens-per-minute", "Maximum number of tokens per minute.", above=0)
    ]
    trace_share: Annotated[
        float,
        Option(
            "--trace-share",
            "With telemetry: share of the conversations of which each call is a span.",
            min=0,
            max=1,
            default=0.01,
        ),
    ]
    batch: Annotated[
        bool,
        Option("--batch", "Send requests in batches, at half the price: each turn takes minutes to hours."),
    ]
    batch_wait: BatchWait
    batch_live_after: Annotated[
        float | None,
        Option(
            "--batch-live-after",
            "With --batch: hours after which a batch is cancelled, and the rest of it is asked live.",
            above=0,
            shown="never",
        ),
    ]
    retry_failed: RetryFailed
    jobs: Annotated[
        str | Path | list[dict[str, str]] | None,
        Option(
            "--jobs",
            "A .csv or .jsonl file with one job in each row, instead of all combinations.",
        ),
    ]
    """Or a list of dicts."""
    sample: Annotated[int | None, SAMPLE, "N jobs at random, spread over the grid; the seed chooses them."]
    order: Annotated[
        Literal["depth", "breadth"],
        Option(
            "--order",
            "depth: all tasks of a pair first. breadth: every role once first.",
            default="depth",
        ),
    ]
    equal_roles: Annotated[
        bool | None,
        Option(
            "--equal-roles/--no-equal-roles",
            "Keep pairs of equal roles, as the paper's data has them, or leave them out.",
            shown="kept in the whole grid, left out of a sample or with a limit",
        ),
    ]
    keep_tasks: Annotated[
        bool, Option("--keep-tasks", "In a fork: keep the specified tasks, too, to compare two models.")
    ]
    acknowledge_misuse: Annotated[
        bool,
        Option(
            "--acknowledge-misuse",
            "Confirm that the run is for red-team research, and that its output is protected from misuse.",
        ),
    ]
    run_code: Annotated[bool, RUN_CODE]
    shard: Annotated[
        str | None,
        Option(
            "--shard",
            "Only this part of the jobs; auto: by the SLURM array or the Indexed Job. N shards share the budget.",
            metavar="K/N",
        ),
    ]
    lists_only: Annotated[
        bool, Option("--lists-only", "Make the lists and no conversations, for several shards.")
    ]
    origin: Annotated[
        str | Path | None,
        Option("--lists", "Another run whose lists are copied, as far as their axes are unchanged."),
    ]


class GenerateArguments(GenerateOptions, total=False):
    """The types of all arguments of :func:`generate` that are not objects of its own."""

    run: str | Path
    limit: Annotated[int | None, Ge(0)]
    budget: Budget
    on_progress: Callable[..., object] | None


class ResumeOptions(TypedDict, total=False):
    """Options that may change when a run is resumed; the others stay as stored."""

    limit: Annotated[int | None, LIMIT, "Another number of jobs."]
    budget: Annotated[Budget, "Another budget, in US dollars for the whole run."]
    batch_wait: BatchWait
    max_tokens: Annotated[MaxTokens, "Another limit of tokens for the whole run."]
    max_messages: Annotated[MaxMessages, "Another limit of messages, for a session."]
    concurrency: Concurrency
    processes: Processes
    price: TokenPrice
    base_url: BaseUrl
    send_keys_to: Annotated[
        Sequence[str],
        Option("--send-keys-to", "Address that the run may ask, with your key. Can be repeated.", default=()),
    ]
    retry_failed: RetryFailed
    tools: Annotated[
        Sequence[str],
        TOOLS,
        "The session's tools: FILE.py or FILE.py:NAME,NAME. Can be repeated.",
    ]
    """And ``mcp:COMMAND``. The run names its tools, but never loads them by itself."""
    run_code: Annotated[bool, YES]


# Reading and exporting runs.


Words = str | Sequence[str]
"""One value, or several of which one is enough."""


class SessionFilters(TypedDict, total=False):
    """Which sessions of a run: each option narrows the selection, and of several values one is enough."""

    id: Annotated[
        Words, Option("--id", "Only sessions with this id; * stands for any characters. Can be repeated.")
    ]
    role: Annotated[
        Words, Option("--role", "Only sessions with this role; * stands for any letters. Can be repeated.")
    ]
    pair: Annotated[Words, Option("--pair", "Only this pair of roles: 'ASSISTANT x USER'. Can be repeated.")]
    task: Annotated[Words, Option("--task", "Only tasks with these words. Can be repeated.")]


class SelectOptions(SessionFilters, total=False):
    """Which sessions of a run are shown: of several values of an option, one is enough."""

    ending: Annotated[Words, Option("--ending", "Only this ending, or unfinished. Can be repeated.")]
    behaviour: Annotated[Words, BEHAVIOUR, "Only sessions that show this behaviour. Can be repeated."]
    mark: Annotated[Words, Option("--marked", "Only sessions with this mark. Can be repeated.")]
    grep: Annotated[str, Option("--grep", "Only sessions in which a turn matches this regular expression.")]


class ExportChoices(SessionFilters, total=False):
    """Keyword options of :meth:`bactrian.Run.export`."""

    mark: Annotated[Words, MARK, "Only sessions with this mark. Can be repeated."]
    min_rounds: Annotated[int, Option("--min-rounds", "Minimum rounds of a session.", min=0, default=0)]
    unfinished: Annotated[bool, Option("--unfinished", "Include unfinished sessions.")]
    dedup: Annotated[
        bool,
        Option(
            "--dedup",
            "Keep only the first of sessions with the same roles, task, system prompts and messages.",
        ),
    ]
    decontaminate: Annotated[
        str | Path | None,
        Option("--decontaminate", "Leave out sessions that quote this benchmark file (HumanEval's format)."),
    ]
    side: Annotated[
        Literal["assistant", "user"],
        Option("--side", "Agent whose messages a model learns to write.", default="assistant"),
    ]
    redact: Annotated[
        bool, Option("--redact", "Remove secrets, e-mail addresses, telephone, card and account numbers.")
    ]
    thoughts: Annotated[
        bool, Option("--thoughts", "Include thoughts of reasoning models, if the format supports it.")
    ]
    plain: Annotated[bool, Option("--plain", "Leave out the system prompts and the words of the protocol.")]
    split: Annotated[
        Sequence[str],
        Option(
            "--split",
            "Fraction of the role pairs to put into another split: validation=0.05. Can be repeated.",
            default=(),
        ),
    ]
    tool: Annotated[
        Literal["trl", "axolotl", "llama-factory"] | None,
        Option("--for", "Also write this tool's configuration."),
    ]
    license: Annotated[str, LICENSE, "Licence of the data, for its card."]
    prompts: Annotated[str | None, PROMPTS, "Prompt pack of the run, if it is your own."]
    push: Annotated[
        str | None,
        Option(
            "--push", "Also upload it, with its card, to this data set of the Hugging Face hub: OWNER/NAME."
        ),
    ]


# Evaluation.


class SpendingOptions(TypedDict, total=False):
    """How models are asked in an evaluation, and how much that may cost."""

    base_url: BaseUrl
    concurrency: Annotated[Concurrency, "Maximum number of concurrent requests."]
    budget: Annotated[Budget, "Stop before all runs together cost more than this many US dollars."]
    max_tokens: Annotated[MaxTokens, "Stop before all runs together use more than this many tokens."]
    price: TokenPrice
    seed: Seed
    retry_failed: Annotated[RetryFailed, "Ask again where a model failed."]
    tier: Tier
    timeout: Timeout
    reply_length: Annotated[
        int | None,
        REPLY_LENGTH,
    ]


class ComparisonOptions(SpendingOptions, total=False):
    """Keyword options of :func:`compare_models`."""

    math: Annotated[
        bool, Option("--math", "Ask the judge to solve the problem first, for tasks with one answer.")
    ]
    repeats: Annotated[int, Option("--repeats", "Judgements in each of the two orders.", min=1, default=1)]
    judge_reply_length: Annotated[
        int | None,
        Option("--judge-reply-length", "Longest reply of a judge, in tokens.", min=1),
    ]
    judge_cut: Annotated[bool, JUDGE_CUT]
    by_roles: Annotated[bool, Option("--by-roles", "Intervals over pairs of roles instead of tasks.")]


class DrawOptions(SpendingOptions, total=False):
    """Keyword options of :func:`extract_solutions`: which role-plays of a run."""

    extractor_reply_length: Annotated[
        int | None,
        Option("--extractor-reply-length", "Longest extracted solution, in tokens.", min=1),
    ]
    tasks: Annotated[int, Option("--tasks", "Tasks to draw at random.", short="-n", min=1, default=100)]
    only: Annotated[
        str | Path | None,
        replace(ONLY, metavar="FILE"),
        "Instead of a draw: a file of session ids, one a line.",
    ]
    out: Annotated[str | Path | None, OUT, "Folder of the solutions. Default: RUN.agents, or RUN.extraction."]


class AgentOptions(DrawOptions, ComparisonOptions, total=False):
    """Keyword options of :func:`evaluate_agents`."""

    chain_of_thought: Annotated[
        bool, Option("--chain-of-thought", "Also compare with answers that think step by step.")
    ]
    dilemma: Annotated[
        str | Path | None,
        Option("--dilemma", "Also write the solutions for CAMEL's voting app: FILE.zip.", metavar="FILE"),
    ]
    against: Annotated[
        str | Path | None,
        Option("--against", "Compare with the role-plays of another run on the same tasks."),
    ]


class ScoreOptions(SpendingOptions, total=False):
    """Keyword options of :func:`evaluate_humaneval` and :func:`score_solutions`."""

    problems: Annotated[
        str | Path | None,
        Option("--problems", "Your own problems: JSON lines in HumanEval's or MBPP's format."),
    ]
    plus: Annotated[
        str | Path | None,
        Option("--plus", "HumanEval+: EvalPlus's data file, or `cache` for the one in its cache."),
    ]
    limit: Annotated[int | None, LIMIT, "Only the first N problems."]
    partial: Annotated[
        bool, Option("--partial", "Score a file with a part of the problems; the result says so.")
    ]
    cpu: Annotated[float, CPU, "Seconds of CPU time for a solution with all its checks."]
    workers: Annotated[int, Option("--workers", "Solutions to judge at once.", min=1, default=2)]
    verdicts: Annotated[
        str | Path | None, OUT, "Verdicts as JSON lines. Default: beside the run or the solutions."
    ]


# Reading the declarations.


class DeclaredOption(NamedTuple):
    """A field with an option, and the type that the command line gives it."""

    name: str
    kind: Any
    option: Option
    required: bool = False


@cache
def read_fields(declaration: type) -> dict[str, Any]:
    """Return the annotations of a declaration's fields."""
    return get_type_hints(declaration, include_extras=True)


def read_option(hint: Any) -> tuple[Any, Option] | None:
    """Return the option in an annotation, with the type that the command line gives it; None without an option."""
    if get_origin(hint) is not Annotated:
        return None
    kind, *notes = get_args(hint)
    option = next((note for note in notes if isinstance(note, Option)), None)
    if option is None:
        return None
    text = [note for note in notes if isinstance(note, str)]
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    members = [get_args(each)[0] if get_origin(each) is Annotated else each for each in members]
    # Python takes more types than the command line, which knows files, lists of words, and single values.
    if Path in members:
        kind = Path
    elif any(get_origin(each) is Sequence for each in members):
        kind = list[str]
    else:
        kind = members[0]
    if members == [bool] and option.default is None:
        option = replace(option, default=False)
    return kind, replace(option, help=text[-1]) if text else option


@cache
def list_options(declaration: Any) -> tuple[DeclaredOption, ...]:
    """Return the fields of a TypedDict, a dataclass or a pydantic model that have an :class:`Option`."""
    defaults: dict[str, Any] = {}
    if is_dataclass(declaration):
        defaults = {field.name: field.default for field in fields(declaration)}
    listed: list[DeclaredOption] = []
    for name, hint in read_fields(declaration).items():
        if (declared := read_option(hint)) is None:
            continue
        kind, option = declared
        required = defaults.get(name) is MISSING
        if name in defaults and not required:
            option = replace(option, default=defaults[name])
        listed.append(DeclaredOption(name, kind, option, required))
    return tuple(listed)


def fill_defaults(options: Mapping[str, Any], declaration: type) -> dict[str, Any]:
    """Return a value for each option of ``declaration``: the one in ``options``, or the default."""
    filled = {declared.name: declared.option.default for declared in list_options(declaration)}
    return filled | {name: value for name, value in options.items() if name in filled}


# Checking keyword arguments.


def check_options(
    function: Callable[..., object], options: Mapping[str, Any], declaration: type, **hints: str
) -> None:
    """Refuse keyword arguments that a function does not have, and values of the wrong type or outside of their limits.

    Args:
        function: The function that was called.
        options: Its keyword arguments.
        declaration: The ``TypedDict`` of those that it has.
        hints: What to write instead, by the name of an argument.

    Raises:
        TypeError: an argument is not known, as for ordinary functions; the message names the nearest.
        InputError: a value cannot be used; with the name of the option and what it takes.
    """
    known = declaration.__annotations__
    parameters = signature(function).parameters.values()
    names = [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD] + [*known]
    sampling = tuple(SamplingSpec.model_fields) if "parameters" in names else ()
    for name in options:
        if name in known:
            continue
        hint = hints.get(name, "")
        if not hint and "critic" in names and name in Critic.__annotations__:
            hint = f"Write critic=bactrian.Critic(ROLE, {name}=…)."
        near = get_close_matches(name, (*names, *sampling), n=1)
        if not hint and near:
            sampled = near[0] not in names
            hint = f"Write parameters={{{near[0]!r}: …}}." if sampled else f"Did you mean {near[0]!r}?"
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}. {hint}".rstrip())
    try:
        _build_model(declaration).model_validate(dict(options))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        name = str(problems[0]["loc"][0])
        wanted = [_describe_type(problem["msg"]) for problem in problems if problem["loc"][0] == name]
        kind = read_fields(declaration)[name]
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        none = ", or None" if types.NoneType in get_args(kind) else ""
        raise InputError(
            f"{options[name]!r} is not a value for {name}.",
            option=name,
            next=f"Give {' or '.join(dict.fromkeys(wanted))}{none}.",
        ) from error


@cache
def _build_model(declaration: type) -> type[BaseModel]:
    fields_: dict[str, Any] = {name: (kind, None) for name, kind in read_fields(declaration).items()}
    return create_model(
        declaration.__name__,
        __config__=ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True),
        **fields_,
    )


def _describe_type(message: str) -> str:
    """Return pydantic's message as the object of a sentence that begins with "Give"."""
    text = message.removeprefix("Input should be ").removeprefix("a valid ").removeprefix("an instance of ")
    words = {
        "string": "a text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "True or False",
        "Path": "a Path",
        "Role": "a Role",
        "callable": "a function",
    }
    if text.startswith(("greater", "less")):
        return f"a number {text}"
    return words.get(text, text)
