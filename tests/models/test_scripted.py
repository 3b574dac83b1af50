"""Scripts: models that reply from a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bactrian.errors import InputError, Refused
from bactrian.models.model import Request
from bactrian.models.scripted import Scripted, read_script


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[{", "line 1, column 3 is not JSON"),
        ("7", "neither a list nor an object"),
        ('{"user": "x"}', "the value of 'user' is not a list"),
        ('{"user": [1]}', "reply 1 of 'user' is neither a text nor an object"),
        ('["a", {"texts": "x"}]', "reply 2 has the key 'texts'"),
        ('[{"delay": "long"}]', "'delay' in reply 1 is not a number"),
        ('[{"finish": "no"}]', "'finish' in reply 1 is not one of stop"),
    ],
)
def test_a_script_that_cannot_be_used_says_where_it_is_wrong(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "script.json"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(problem)):
        read_script(path)


async def test_an_agent_without_lines_is_told_which_agents_have_some() -> None:
    with pytest.raises(Refused, match=r"no line 1 for critic; it has 0\. Its agents: user, assistant\."):
        await Scripted({"user": ["a"], "assistant": ["b"]}).reply(Request(messages=(), agent="critic"))
