"""A role flips only where it is somebody's part to instruct; elsewhere every surface says that it does not apply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.analyze.learned import has_instructor
from bactrian.records.session import IMPORTED, Provenance, Session
from benchmarks.labelled import conversation
from tests.helpers.command import bactrian

AGREE = (
    "A web page would suit our users best.",
    "I agree. If you have any further questions or need assistance, feel free to ask.",
    "Please provide me with the next instruction, I am here to help you.",
    "Good. <INFO> Web page",
)
FLIP = (
    "Instruction: Name a tea.\nInput: None",
    "Solution: Sencha.",
    "Is there anything else I can do for you?",
)
ASKED = ("Which tea is green?", "Sencha is.", "Thanks!")


def imported(*texts: str, user: str, assistant: str) -> Session:
    provenance = Provenance(prompts=f"{IMPORTED}messages", prompts_hash="", protocol="free")
    return conversation(*texts, user=user, assistant=assistant, provenance=provenance)


@pytest.mark.parametrize(
    ("session", "instructs"),
    [
        (conversation(*FLIP), True),
        (imported(*FLIP, user="Stock Trader", assistant="Python Programmer"), True),
        (imported(*ASKED, user="User", assistant="Assistant"), True),
        (imported(*ASKED, user="customer (simulated)", assistant="airline agent"), True),
        (imported(*AGREE, user="Chief Executive Officer", assistant="Chief Product Officer"), False),
        (imported(*AGREE[:3], user="Code Reviewer", assistant="Programmer"), False),
        (imported(*AGREE[:3], user="Alice", assistant="Bob"), False),
        (conversation(*AGREE, user="Chief Executive Officer", assistant="Chief Product Officer"), False),
    ],
)
def test_somebody_instructs_where_the_protocol_or_the_roles_say_so(session: Session, instructs: bool) -> None:
    assert has_instructor(session) is instructs
    if not instructs:
        assert not find_behaviours(session, ["role_flip"], least=0.0)


@pytest.mark.system
def test_reports_and_filters_say_that_role_flips_do_not_apply(tmp_path: Path) -> None:
    row = {
        "role_1": "Chief Product Officer_RoleType.ASSISTANT",
        "role_2": "Chief Executive Officer_RoleType.USER",
        "id": "001_001_001",
        "original_task": "Choose a form for the product",
        **{
            f"message_{number}": {
                "role_type": "USER" if number % 2 else "ASSISTANT",
                "role_name": "Chief Executive Officer" if number % 2 else "Chief Product Officer",
                "role": "user" if number % 2 else "assistant",
                "content": text,
            }
            for number, text in enumerate(AGREE, start=1)
        },
        "num_messages": len(AGREE),
    }
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "001_001_001.json").write_text(json.dumps(row), "utf-8")
    assert bactrian("import", "chats", "--run", "peers.db", cwd=tmp_path).returncode == 0
    told = bactrian("analyze", "peers.db", "--report", "peers.html", cwd=tmp_path)
    assert "role_flip does not apply" in told.stdout, told.stderr
    assert "does not apply" in (tmp_path / "peers.html").read_text("utf-8")
    flips = json.loads(bactrian("analyze", "peers.db", "--json", cwd=tmp_path).stdout)["behaviours"][
        "role_flip"
    ]
    assert (flips["applies"], flips["sessions"], flips["rate"]) == (0, 0, None)
    kept = ("export", "peers.db", "--format", "camel-chat", "--out", "kept", "--drop", "finding=role_flip")
    assert bactrian(*kept, "--unfinished", cwd=tmp_path).returncode == 0
    assert (tmp_path / "kept" / "001_001_001.json").exists()
