"""Models of installed packages: what their code gets wrong becomes an error that names the model."""

from __future__ import annotations

from collections.abc import Generator

import pytest

import bactrian as bt
from bactrian.errors import InputError, ModelError, TryAgain
from bactrian.models.model import RemoteModel, Request
from bactrian.models.open import ModelOptions, open_model, open_plugin
from tests.helpers.packages import install

PACKAGE = """
from bactrian import errors
from bactrian.models.model import Reply, ReplyChoice, Request
from bactrian.records.text import Text
from bactrian.records.turn import Usage

FAULTS = {
    "full": errors.ContextFull("The window is full."),
    "filtered": errors.Filtered("The content is blocked."),
    "dead": errors.ModelError("The server is dead."),
    "busy": errors.TryAgain("The server is busy."),
    "buggy": KeyError("poem"),
    "offline": ConnectionRefusedError(111, "Connection refused"),
}


class Vogon:
    def __init__(self, model):
        self.name = f"vogon:{model}"
        self.endpoint, self.before_again = ("http://127.0.0.1:9", "sesame"), None

    async def reply(self, request):
        kind = self.name.partition(":")[2]
        if kind in FAULTS:
            raise FAULTS[kind]
        if kind == "text":
            return "Solution: Sencha."
        return Reply((ReplyChoice(Text("Solution: Sencha.")),), Usage(1, 1), self.name)

    async def close(self):
        pass


def open_vogon(model, options):
    if model == "nameless":
        raise RuntimeError("no such poem")
    if model == "unknown":
        raise errors.InputError("There is no such poem.")
    return Vogon(model)
"""
REQUEST = Request(())


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    folder = tmp_path_factory.mktemp("site")
    install(folder, "bactrian_vogon", PACKAGE, "bactrian.models", "vogon = bactrian_vogon:open_vogon")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("full", "token_limit"),
        ("filtered", "refused"),
        ("dead", "failed"),
        ("buggy", "failed"),
        ("offline", "failed"),
    ],
)
@pytest.mark.filterwarnings("ignore::bactrian.errors.BactrianWarning")
def test_each_error_of_a_package_ends_the_session_as_the_page_says(model: str, code: str) -> None:
    user = bt.Scripted(["Instruction: Name a tea.\nInput: None"])
    session = bt.play("tea", models={"user": user, "assistant": f"vogon:{model}"}, specify=False)
    assert session.ending is not None
    assert (session.ending.code, len(session.turns)) == (code, 1)


async def test_an_exception_of_a_package_is_an_error_that_names_the_model_and_the_exception() -> None:
    with pytest.raises(ModelError, match="KeyError: 'poem'") as caught:
        await open_model("vogon:buggy", ModelOptions()).reply(REQUEST)
    assert caught.value.where == "vogon:buggy"
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_reply_of_a_package_that_is_a_text_is_refused() -> None:
    with pytest.raises(ModelError, match="returned str and not a Reply"):
        await open_model("vogon:text", ModelOptions()).reply(REQUEST)


async def test_a_transient_fault_of_a_package_stays_one() -> None:
    with pytest.raises(TryAgain, match="busy"):
        await open_model("vogon:busy", ModelOptions()).reply(REQUEST)


@pytest.mark.parametrize(
    ("name", "says"),
    [("nameless", "RuntimeError: no such poem"), ("unknown", "^There is no such poem.$")],
)
def test_a_package_that_cannot_open_a_model_is_an_error_of_input(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        open_model(f"vogon:{name}", ModelOptions())


def test_what_a_package_opens_is_a_model() -> None:
    with pytest.raises(InputError, match="AttributeError: .*name"):
        open_plugin("vogon:x", lambda _model, _options: object(), ModelOptions())  # type: ignore[arg-type,return-value]


def test_models_of_packages_share_the_limits_of_their_endpoint() -> None:
    model = open_model("vogon:x", ModelOptions())
    assert isinstance(model, RemoteModel)
    assert model.endpoint == ("http://127.0.0.1:9", "sesame")

    async def wait() -> None:
        pass

    model.before_again = wait
    assert model._model.before_again is wait  # type: ignore[attr-defined]
