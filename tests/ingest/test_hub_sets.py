"""Data sets come from the hub with their licence and revision, and go there with their card."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from bactrian.errors import InputError
from bactrian.ingest.importer import HubSet, choose_files, read_hub_address
from bactrian.models.credentials import DOTENV
from tests.helpers.command import Command, clean_environment
from tests.helpers.exports import handed
from tests.helpers.hub_server import COMMIT, DataSets, serve_data_sets
from tests.helpers.runs import make_run, session

CAMEL = {
    "ai_society": [
        "ai_society_chat.tar.gz",
        "ai_society_chat.zip",
        "ai_society_instructions.json",
        "README.md",
    ],
    "code": ["code_chat.tar.gz", "code_chat.zip", "code_instructions.json"],
    "math": ["math.zip"],
    "physics": ["physics.zip"],
    "chemistry": ["chemistry.zip"],
    "biology": ["biology.zip"],
    "ai_society_translated": [f"ai_society_chat_{code}.zip" for code in ("ar", "de", "zh")],
}


def test_each_of_camels_data_sets_has_files_to_import() -> None:
    chosen = {
        name: choose_files(HubSet(f"camel-ai/{name}"), dict.fromkeys(files, 9))
        for name, files in CAMEL.items()
    }
    assert chosen["ai_society"] in (["ai_society_chat.zip"], ["ai_society_chat.tar.gz"])
    assert chosen["code"] in (["code_chat.zip"], ["code_chat.tar.gz"])
    assert [chosen[name] for name in ("math", "physics", "chemistry", "biology")] == [
        ["math.zip"],
        ["physics.zip"],
        ["chemistry.zip"],
        ["biology.zip"],
    ]
    assert chosen["ai_society_translated"] == CAMEL["ai_society_translated"]


@pytest.mark.parametrize("files", [["a.json", "b.json"], ["x.parquet"], []])
def test_a_set_without_a_clear_choice_is_refused_with_its_files(files: list[str]) -> None:
    with pytest.raises(InputError, match=r"hf://a/b/FILE") as caught:
        choose_files(HubSet("a/b"), dict.fromkeys(files, 1))
    assert all(name in str(caught.value) for name in files)


def test_an_address_is_read_with_revision_and_file() -> None:
    assert read_hub_address(Path("hf://a/b")) == HubSet("a/b")
    assert read_hub_address(Path("hf://a/b@v1/c/d.zip")) == HubSet("a/b", "v1", "c/d.zip")
    assert read_hub_address(Path("hf.zip")) is None


@pytest_asyncio.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[DataSets]:
    for name in ("HF_TOKEN", "HF_HOME", DOTENV):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    async with serve_data_sets(DataSets()) as sets:
        yield sets


async def run_command(folder: Path, hub: DataSets, *command: str, **more: str) -> tuple[int, str, str]:
    settings = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(folder / "hub-cache"),
        "HF_HUB_DISABLE_XET": "1",
        **more,
    }
    process = Command(command, folder, clean_environment(**settings))
    out, err = await process.communicate()
    return process.wait(), out.decode(), err.decode()


@pytest.mark.slow
async def test_a_set_is_imported_by_revision_with_its_licence_after_a_download_that_broke_off(
    tmp_path: Path, hub: DataSets
) -> None:
    run = await make_run(tmp_path / "made.db", [session(f"s{number:03}", rounds=3) for number in range(150)])
    await handed(run, "camel-chat", tmp_path / "chats.zip")
    archive = (tmp_path / "chats.zip").read_bytes()
    hub.sets["camel-ai/ai_society"] = {"ai_society_chat.zip": archive, "ai_society_instructions.json": b"[]"}
    hub.license, hub.cut = None, len(archive) // 2
    command = ("import", f"hf://camel-ai/ai_society@{COMMIT}", "--run", "camel.db")
    code, out, err = await run_command(tmp_path, hub, *command)
    if code != 0:  # the client itself continues some downloads
        code, out, err = await run_command(tmp_path, hub, *command)
    assert code == 0, err
    assert hub.cut is None
    assert "150 conversations" in out
    assert "Licence: CC-BY-NC-4.0" in err
    assert not any("instructions" in asked for asked in hub.asked)
    made = await handed(tmp_path / "camel.db", "hf", tmp_path / "set")
    assert made["license"] == "CC-BY-NC-4.0"
    assert made["sources"] == [{"license": "CC-BY-NC-4.0", "name": "camel-ai/ai_society", "revision": COMMIT}]
    card = (tmp_path / "set" / "README.md").read_text("utf-8")
    assert 'license: "cc-by-nc-4.0"' in card and COMMIT in card
    code, _, err = await run_command(tmp_path, hub, "import", "hf://camel-ai/ai_society@v9", "--run", "x.db")
    assert (code, "no such revision" in err) == (2, True), err
    code, _, err = await run_command(tmp_path, hub, "import", "hf://camel-ai/nothing", "--run", "x.db")
    assert (code, "no repository" in err) == (2, True), err


@pytest.mark.system
async def test_an_export_is_uploaded_with_its_card_to_a_private_set(tmp_path: Path, hub: DataSets) -> None:
    await make_run(tmp_path / "tea.db", [session("one"), session("two")])
    command = ("export", "tea.db", "--format", "hf", "--out", "set", "--push", "me/tea")
    code, _, err = await run_command(tmp_path, hub, *command)
    assert (code, "HF_TOKEN" in err, hub.asked) == (2, True, []), err
    assert not (tmp_path / "set").exists()
    code, out, err = await run_command(tmp_path, hub, *command, HF_TOKEN="hf_x")
    assert code == 0, err
    assert f"{hub.url}/datasets/me/tea" in out
    assert hub.private == {"me/tea": True}
    local = {
        file.relative_to(tmp_path / "set").as_posix(): file.read_bytes()
        for file in (tmp_path / "set").rglob("*")
        if file.is_file()
    }
    assert hub.sets["me/tea"] == local
    assert {"README.md", "manifest.json"} < local.keys()
    code, _, err = await run_command(
        tmp_path, hub, *command[:3], "messages", "--out", "m", "--push", "me/tea", HF_TOKEN="hf_x"
    )
    assert (code, "--format hf" in err) == (2, True), err
