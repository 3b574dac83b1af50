"""The options of conversations and of runs. Each is declared here, once.

Everything else comes from the declaration: the keyword arguments of :func:`bactrian.play` and :func:`bactrian.generate`
(which pyright checks and an editor completes), the checks of their types and limits, the flags of the command line with
their environment variables and their help, the stored command, and the pages of the reference.

To add an option, add a field. A field of :class:`SamplingSpec` is a sampling parameter that every agent has.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    """What an annotation says about an option. Its type is the type of the annotation."""

    flag: str
    """Its name on the command line, as ``--name`` or ``--name/--no-name``. The variable of the environment follows."""
    help: str
    """One or two sentences, for the help and the reference."""
    short: str = ""
    """A short name, such as ``-n``."""
    min: float | None = None
    above: float | None = None
    """The value is greater than this."""
    max: float | None = None
    default: Any = None
    """What holds if the option is not given. Unused where a parameter or a dataclass has a default of its own."""
    shown: str = ""
    """What the help shows as the default, if that is not the default itself."""
    kind: Any = None
    """The type of the flag's value, where Python takes more types than the command line."""
    check: Callable[[Any], Any] | None = None
    """Returns the value to use; called with what was given on the command line."""
    metavar: str = ""
    """What stands for the value in the help, where it is not what all commands have."""
    again: str = ""
    """What to do instead of giving the option twice."""
    hidden: bool = False
    """True if the help does not list it."""
    variable: bool = True
    """True if a variable of the environment sets it, too."""

    def __iter__(self) -> Iterator[BaseMetadata]:
        """Yield the limits in the form that pydantic reads."""
        if self.min is not None:
            yield Ge(self.min)
        if self.above is not None:
            yield Gt(self.above)
        if self.max is not None:
            yield Le(self.max)


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
        Option("--temperature", "Sampling temperature of all agents."),
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
    seed: Annotated[Annotated[int, Field(strict=True)] | Nothing | None, Option("--seed", "")] = None
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
    def _accept_a_single_text(cls, given: object) -> object:
        return (given,) if isinstance(given, str) and given != "none" else given

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
    proposals: Annotated[int, Option("--proposals", "Proposals for each turn.", min=1, max=100)] = 3
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
            raise InputError("A critic has 1 to 100 proposals and at least one round.", where="critic")
        width, depth = 1, 1
        if self.search is not None:
            try:
                width, depth = read_search(self.search)
            except ValueError as error:
                message = str(error)
                raise InputError(f"{message[:1].upper()}{message[1:]}.", where="--search") from error
            if (width, depth) != (1, 1) and self.rounds > 1:
                raise InputError(
                    "A search has one round of proposals a turn.",
                    where="--critic-rounds",
                    next="Leave it out.",
                )
        return CriticSettings(
            self.role, self.proposals, self.rounds, self.criteria, self.unreadable, width, depth
        )


# Options that several functions and commands have.


BaseUrl = Annotated[str | None, Option("--base-url", "Endpoint of openai:NAME.")]
Window = Annotated[int | None, Option("--window", "Context window of openai:NAME, in tokens.", min=1)]
Timeout = Annotated[
    float, Option("--timeout", "Longest wait for a reply, in seconds.", above=0, default=600.0)
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
TokenPrice = Annotated[
    str | None,
    Option("--price", "US dollars per million tokens, prompt/completion[/cached].", shown="a table"),
]
Seed = Annotated[int | None, Option("--seed", "Seed of the sampling.")]
Budget = Annotated[
    float | None,
    Option("--budget", "Stop before this command costs more than this many US dollars.", min=0),
]
RunBudget = Annotated[
    float | None, Option("--budget", "Stop before the run costs more than this many US dollars.", min=0)
]
Concurrency = Annotated[
    int | None,
    Option(
        "--concurrency",
        "Maximum number of concurrent conversations. Default: 64; 4 on a local model.",
        min=1,
    ),
]
MaxTokens = Annotated[
    int | None, Option("--max-tokens", "Stop before the run uses more than this many tokens.", min=1)
]
RetryFailed = Annotated[
    bool, Option("--retry-failed", "Retry failed jobs and incomplete lists.", default=False)
]
Language = Annotated[str | None, Option("--language", "Language of the conversation.")]


class EndpointOptions(TypedDict, total=False):
    """How a model is reached, and what its tokens cost."""

    base_url: BaseUrl
    """The default is ``OPENAI_BASE_URL``."""
    window: Window
    timeout: Timeout
    """A synchronous function of your own cannot be interrupted: it runs on in its thread, and its answer is ignored."""
    max_wait: MaxWait
    price: TokenPrice


class SamplingOptions(TypedDict, total=False):
    """How the models choose their words."""

    seed: Seed
    parameters: Mapping[str, Any]
    """Sampling parameters: ``{"temperature": 0.2, "assistant": {"max_tokens": 500}}``; ``"none"`` omits a parameter."""


# A conversation.


class SocietyOptions(EndpointOptions, total=False):
    """Options of a society, which a role-play has, too."""

    seed: Seed
    budget: Budget
    max_messages: Annotated[
        int | None,
        Option(
            "--max-messages",
            "Maximum number of messages. Default: 40, or 8 if the built-in model plays both.",
            min=1,
        ),
    ]
    protocol: Annotated[
        Literal["free", "enforced"] | None,
        Option(
            "--protocol",
            "Whether grammars enforce the protocol. Default: enforced if the built-in model plays both, else free.",
        ),
    ]
    language: Language
    prompts: Annotated[
        str | None,
        Option("--prompts", "Prompt pack: a name or a .toml file. Default: ai-society, or a small one."),
    ]


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
    plan: Annotated[bool, Option("--plan", "Divide the task into subtasks first.", default=False)]
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
            kind=str,
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
        Option(
            "--model",
            "Model of every agent; see `bactrian models`. Default: the recipe's, local, or the assistant's if both "
            "sides have one.",
        ),
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
    max_tokens: MaxTokens
    requests_per_minute: Annotated[
        float | None,
        Option("--requests-per-minute", "Maximum number of requests per minute.", above=0),
    ]
    tokens_per_minute: Annotated[
        float | None, Option("--tokens-per-minute", "Maximum number of tokens per minute.", above=0)
    ]
    retry_failed: RetryFailed
    jobs: Annotated[
        str | Path | list[dict[str, str]] | None,
        Option(
            "--jobs",
            "A .csv or .jsonl file with one job in each row, instead of all combinations.",
            kind=Path,
        ),
    ]
    """Or a list of dicts."""
    sample: Annotated[
        int | None,
        Option("--sample", "N jobs at random, spread over the grid; the seed chooses them.", min=1),
    ]
    order: Annotated[
        Literal["depth", "breadth"],
        Option(
            "--order",
            "depth: all tasks of a pair first. breadth: every role once first.",
            default="depth",
        ),
    ]
    equal_roles: Annotated[
        bool,
        Option("--equal-roles", "Keep pairs of equal roles, as the paper's data has them.", default=False),
    ]
    keep_tasks: Annotated[
        bool,
        Option(
            "--keep-tasks",
            "In a fork: keep the specified tasks, too, to compare two models.",
            default=False,
        ),
    ]
    acknowledge_misuse: Annotated[
        bool,
        Option(
            "--acknowledge-misuse",
            "Confirm that the run is for red-team research, and that its output is protected from misuse.",
            default=False,
        ),
    ]
    run_code: Annotated[
        bool,
        Option("--run-code", "Let embodied assistants run what they write, in the sandbox.", default=False),
    ]
    origin: str | Path | None
    """Another run whose unchanged lists are copied."""


class GenerateArguments(GenerateOptions, total=False):
    """The types of all arguments of :func:`generate` that are not objects of its own."""

    run: str | Path
    limit: Annotated[int | None, Ge(0)]
    budget: RunBudget
    on_progress: Callable[..., object] | None


class ResumeOptions(TypedDict, total=False):
    """Options that may change when a run is resumed; the others stay as stored."""

    limit: Annotated[int | None, Option("--limit", "Another number of jobs.", short="-n", min=1)]
    budget: Annotated[
        float | None, Option("--budget", "Another budget, in US dollars for the whole run.", min=0)
    ]
    max_tokens: Annotated[
        int | None, Option("--max-tokens", "Another limit of tokens for the whole run.", min=1)
    ]
    max_messages: Annotated[
        int | None, Option("--max-messages", "Another limit of messages, for a session.", min=1)
    ]
    concurrency: Concurrency
    price: TokenPrice
    base_url: BaseUrl
    send_keys_to: Annotated[
        Sequence[str],
        Option(
            "--send-keys-to",
            "Address in the run that may receive your key. Can be repeated.",
            kind=list[str],
            default=(),
        ),
    ]
    retry_failed: RetryFailed
    tools: Annotated[
        Sequence[str],
        Option(
            "--tools",
            "The session's tools: FILE.py or FILE.py:NAME,NAME. Can be repeated.",
            kind=list[str],
            default=(),
        ),
    ]
    """And ``mcp:COMMAND``. The run names its tools, but never loads them by itself."""
    run_code: Annotated[
        bool, Option("--yes", "Let embodied agents run code without asking first.", default=False)
    ]


# Reading the declarations.


class DeclaredOption(NamedTuple):
    """A field with an option."""

    name: str
    kind: Any
    """The type, without None."""
    option: Option
    required: bool = False
    """True for a field of a dataclass without a default."""


@cache
def read_fields(declaration: type) -> dict[str, Any]:
    """Return the annotations of a declaration's fields."""
    return get_type_hints(declaration, include_extras=True)


@cache
def list_options(declaration: type) -> tuple[DeclaredOption, ...]:
    """Return the fields of a TypedDict, a dataclass or a pydantic model that have an :class:`Option`."""
    defaults = _list_defaults(declaration)
    listed: list[DeclaredOption] = []
    for name, hint in read_fields(declaration).items():
        option = next((part for part in get_args(hint) if isinstance(part, Option)), None)
        if get_origin(hint) is not Annotated or option is None:
            continue
        required = defaults.get(name) is MISSING
        if name in defaults and not required:
            option = replace(option, default=defaults[name])
        kind = option.kind or strip_none(get_args(hint)[0])
        listed.append(DeclaredOption(name, kind, option, required))
    return tuple(listed)


def _list_defaults(declaration: Any) -> dict[str, Any]:
    """Return the default of each field of a dataclass."""
    if not is_dataclass(declaration):
        return {}
    return {field.name: field.default for field in fields(declaration)}


def strip_none(kind: Any) -> Any:
    """Return ``kind`` without None: ``int`` for ``int | None``."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    left = tuple(part for part in get_args(kind) if part is not types.NoneType)
    return left[0] if len(left) == 1 else Union[left]  # noqa: UP007 (the members are not known before)


def fill_defaults(options: Mapping[str, Any], declaration: type) -> dict[str, Any]:
    """Return a value for each option of ``declaration``: the one in ``options``, or the default."""
    filled = {declared.name: declared.option.default for declared in list_options(declaration)}
    return filled | {name: value for name, value in options.items() if name in filled}


# Checking keyword arguments.


def check_names(
    function: Callable[..., object], options: Collection[str], declaration: type, **hints: str
) -> None:
    """Refuse keyword arguments that a function does not have, as Python does for ordinary functions.

    Args:
        function: The function that was called.
        options: Names of its keyword arguments.
        declaration: The ``TypedDict`` of those that it has.
        hints: What to write instead, by the name of an argument.

    Raises:
        TypeError: an argument is not known; the message names the nearest.
    """
    known = declaration.__annotations__
    parameters = signature(function).parameters.values()
    names = [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD] + [*known]
    sampling = tuple(SamplingSpec.model_fields) if "parameters" in names else ()
    for name in options:
        if name in known:
            continue
        hint = hints.get(name, "")
        near = get_close_matches(name, (*names, *sampling), n=1)
        if not hint and near:
            sampled = near[0] not in names
            hint = f"Write parameters={{{near[0]!r}: …}}." if sampled else f"Did you mean {near[0]!r}?"
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}. {hint}".rstrip())


def check_values(options: Mapping[str, Any], declaration: type) -> None:
    """Refuse values of the wrong type, or outside of their limits.

    Raises:
        InputError: with the name of the option and what it takes.
    """
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
            where=name,
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
