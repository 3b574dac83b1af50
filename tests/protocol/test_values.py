"""Bad ideas and role names are refused in words a person can act on; odd ones are left alone."""

import pytest

from bactrian.errors import InputError
from bactrian.records.session import Role, check_name, check_role, check_text

ODD = [
    "{braces} and 'quotes' and \"more\"",
    "{{ 7*7 }}",
    "مرحبا \u202eabc",
    "👩‍👩‍👧 é e\u0301",
    "a\nb\r\nc\td",
]


@pytest.mark.parametrize("idea", ODD)
def test_an_odd_idea_comes_back_unchanged(idea: str) -> None:
    assert check_text(idea, "idea") == idea


@pytest.mark.parametrize("idea", ["", " \t\r\n", "\u2003"])
def test_an_idea_of_nothing_is_refused(idea: str) -> None:
    with pytest.raises(InputError, match="The idea is empty"):
        check_text(idea, "idea")


def test_an_idea_of_ten_megabytes_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(InputError, match=r"10,000,000 characters; the limit is 100,000"):
        check_text("x" * 10_000_000, "idea")


def test_an_idea_just_as_long_as_the_limit_is_taken() -> None:
    assert len(check_text("x" * 100_000, "idea")) == 100_000


def test_a_nul_is_refused_with_its_field_and_its_position() -> None:
    with pytest.raises(InputError, match="The idea contains a NUL character, at position 4"):
        check_text("abc\0def", "idea")


def test_half_a_surrogate_pair_is_refused_with_its_position() -> None:
    with pytest.raises(InputError, match="The idea is not valid Unicode text, at position 3"):
        check_text("ab\udc80", "idea")


@pytest.mark.parametrize("name", ["Stock\nTrader", "Stock Trader\n", "Stock\u2028Trader", "Stock\rTrader"])
def test_a_role_name_of_several_lines_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="The user role has more than one line"):
        check_name(name, "user role")


def test_a_role_name_of_301_characters_is_refused() -> None:
    with pytest.raises(InputError, match="The user role has 301 characters; the limit is 300"):
        check_name("x" * 301, "user role")


def test_a_role_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="The user role is empty"):
        check_role(Role(" "), "user role")


def test_a_role_may_have_a_description_of_several_lines_or_none() -> None:
    for description in ("", "Trades stocks.\nKnows no Python."):
        role = Role("Stock Trader", description)
        assert check_role(role, "user role") == role


def test_a_nul_in_a_description_is_refused() -> None:
    with pytest.raises(InputError, match="The user role description contains a NUL"):
        check_role(Role("Stock Trader", "a\0"), "user role")
