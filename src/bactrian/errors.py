"""The error tree. Every error says what happened, where, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class BactrianError(Exception):
    """An error that a person can act on.

    ``what`` happened, ``where`` (a file and line, an address, an option) and the ``next`` action, each one
    short sentence or phrase. Where it is an argument of a call, ``option`` is its name; the texts name other arguments
    as ``name=VALUE``. The command line prints them without a traceback, in the words of its flags, and ends with
    ``exit_code``.

    Example:
        >>> import bactrian as bt
        >>> try:
        ...     bt.open_run("nowhere.db")
        ... except bt.BactrianError as error:
        ...     error.where
        'nowhere.db'
    """

    exit_code = 1

    def __init__(
        self, what: str, *, where: str | None = None, next: str | None = None, option: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        # Also where a path, or what a library says, has an address with a password.
        self.where = re.sub(r"(:/+)[^/\s]*:[^/\s]*@", r"\1…@", where or option or "") or None
        self.next = next
        self.option = option

    @property
    def report(self) -> str:
        """Where it happened, and what; without the next action.

        Example:
            >>> bt.BactrianError("There is no such run.", where="nowhere.db").report
            'nowhere.db: There is no such run.'
        """
        return f"{self.where}: {self.what}" if self.where else self.what

    def __str__(self) -> str:
        return f"{self.report}\n{self.next}" if self.next else self.report

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls the class with `args`, which some of the classes below do not take.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[BactrianError], arguments: tuple[Any, ...], state: dict[str, Any]) -> BactrianError:
    """Make an error again that another process raised."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class BactrianWarning(UserWarning):
    """A message that a person should know and that stops nothing."""


class InputError(BactrianError):
    """Wrong usage, or a file from the user that cannot be used."""

    exit_code = 2


class PromptError(InputError):
    """A prompt pack that cannot be read, or a template that cannot be filled."""


class RecipeError(InputError):
    """A recipe that cannot be read, or that cannot be followed."""


class MissingExtra(InputError):
    """An optional part of the package is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs an optional part that is not installed.",
            next=f"Install it: pip install 'bactrian[{extra}]'",
        )
        self.extra = extra


def import_optional(module: str, extra: str, needed_for: str) -> Any:
    """Import a module of an extra. Raises MissingExtra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(extra, needed_for) from error


class StoreError(BactrianError):
    """The store cannot be opened, read or written. What was committed before is kept."""


class SandboxError(BactrianError):
    """A sandbox did not start, or was lost. It says nothing about the program that was to run in it."""


class ModelError(BactrianError):
    """A model did not answer, and asking again will not help.

    ``sample`` contains up to 2 KB of what came back instead of a reply.
    """

    spent: tuple[int, int] = (0, 0)
    """Prompt and completion tokens that it cost although it failed, as far as they are known or can be reckoned."""
    endpoint_wide = False
    """True if it is about the endpoint and not about this request: another session would fare no better."""

    def __init__(
        self, what: str, *, where: str | None = None, next: str | None = None, sample: bytes = b""
    ) -> None:
        super().__init__(what, where=where, next=next)
        self.sample = sample[:2048]


class Refused(ModelError):
    """The endpoint, or the model, refuses this request. Another request may fare better."""


class RefusedOutright(Refused):
    """An endpoint that has never answered refuses its first request: it will refuse every other in the same way."""

    endpoint_wide = True


class RunInUse(StoreError):
    """Another process writes the run."""


class RefusedPrompt(Refused):
    """The endpoint refuses this request and names no parameter: its content may be at fault, or all are refused."""


class Forbidden(RefusedPrompt):
    """The endpoint forbids this request (403): the key has no right to it, or its content is blocked."""


class TryAgain(ModelError):
    """A transient fault: a dropped connection, a timeout, 429 or 5xx. The retry wrapper asks again.

    ``after`` is the wait in seconds the endpoint itself asked for; such a wait uses up no attempt.
    """

    endpoint_wide = True
    after: float | None = None
    status: int | None = None
    """HTTP status of the answer; None if there was none."""
    overload = False
    """True if the endpoint says that it receives too many requests."""
    crowded = False
    """True if a connection was not accepted, or closed before any answer: there may be too many."""


class Unreachable(TryAgain):
    """No connection. A transient fault of an endpoint that has answered before; else a mistake in its address."""


class GaveUp(ModelError):
    """A transient fault lasted longer than the retry wrapper waits. A later run may continue."""

    endpoint_wide = True


class BadReply(ModelError):
    """The endpoint's answer is not a reply. It is requested again a few times."""


class EmptyReply(BadReply):
    """The model returned two empty replies."""


class CutShort(BadReply):
    """A reply with a response format reached its maximum length before it was complete."""


class NotAnEndpoint(BadReply):
    """A web page instead of a reply: from an endpoint that has answered a bad reply, else a mistake in its address."""

    endpoint_wide = True


class Denied(ModelError):
    """The key is missing, wrong, or has no rights or money left (401, 402), or every request is refused (400, 403)."""

    endpoint_wide = True


class UnknownModel(ModelError):
    """The endpoint or the library does not have a model of that name."""

    endpoint_wide = True


class Exhausted(ModelError):
    """This computer cannot run the model, most likely for lack of memory."""

    endpoint_wide = True


class ContextFull(ModelError):
    """The request, with room for its reply, does not fit the model's context window."""


class Oversize(ModelError):
    """The reply exceeded the size limit and was aborted."""


class Filtered(ModelError):
    """The endpoint's content filter refused the request."""


class Stopped(ModelError):
    """A person who takes part wants the session to end."""


class Left(ModelError):
    """A person who takes part does not answer any more. A later run may continue."""

    endpoint_wide = True


class BudgetReached(BactrianError):
    """The next call would exceed the user's limit. All results so far are stored and can be resumed."""

    exit_code = 3


class LeaseLost(StoreError):
    """What this process holds of the run may no longer be so: others play its jobs, or turns were lost."""

    exit_code = 5

    def __init__(self, where: str, *, moved: bool) -> None:
        what = "This process was not heard of for longer than its lease, so others play its jobs."
        kept = "Nothing is lost."
        if moved:
            what = "The database is now another server, which may lack the last turns."
            kept = "They are made again."
        super().__init__(what, where=where, next=f"{kept} The same command joins the run again.")


class BatchesOut(BactrianError):
    """Requests are out in batches, whose replies the same command collects later."""

    exit_code = 3


class Halted(BactrianError):
    """The work is being stopped, and the call was still waiting: nothing was sent."""

    def __init__(self) -> None:
        super().__init__("The work is to stop.")


@contextmanager
def explain_own_errors(
    what: str, where: str, next: str, kind: type[BactrianError] = InputError
) -> Generator[None]:
    """Convert an error in code of the user or of a package to one of ``kind``, which says ``what`` failed, and why."""
    try:
        yield
    except BactrianError:
        raise
    except (Exception, SystemExit) as error:  # An exit would look like the end of the command.
        why = " ".join(str(error).split())
        raise kind(f"{what}: {type(error).__name__}: {why}.", where=where, next=next) from error


@contextmanager
def explain_os_errors(
    what: str, where: object, next: str, kind: type[BactrianError] = InputError
) -> Generator[None]:
    """Convert an error of the system to one of ``kind``, which says ``what`` failed, where, and the ``next`` action."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}.", where=str(where), next=next) from error
