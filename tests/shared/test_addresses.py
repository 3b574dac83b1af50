"""The address of a shared run never shows, keeps or passes on a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.store import find_address
from bactrian.store.locations import locate_run, read_address
from tests.helpers.command import bactrian


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@db/society",
        "postgresql://db/society?password=s3cret",
        "postgres://ann:s3cret@db:5433/society?run=one",
        "postgresql://db/society?sslpassword=s3cret",
        "postgresql://db/society?PASSWORD=s3cret",
        "postgresql://db/society?passwd=s3cret",
    ],
)
def test_an_address_with_a_password_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(InputError, match="contains a password") as refused:
        read_address(address)
    assert "s3cret" not in str(refused.value)
    assert "PGPASSFILE" in str(refused.value)


@pytest.mark.parametrize("sign", ["/", "?", "#", "@s/", "/?"])
def test_a_password_with_a_sign_that_divides_addresses_is_not_shown(sign: str) -> None:
    with pytest.raises(InputError, match="PGPASSFILE") as refused:
        read_address(f"postgresql://ann:s3c{sign}ret@db/society")
    assert not any(part in str(refused.value) for part in ("s3c", "ret@"))


def test_an_address_without_a_host_is_that_of_the_socket_of_this_computer() -> None:
    for address in ("postgresql:///society", "postgresql:///society?host=/run/postgresql"):
        assert read_address(address).connection == str(read_address(address)) == address


@pytest.mark.parametrize("verb", ["status", "show", "analyze", "explore"])
def test_no_command_shows_the_password_of_an_address(verb: str, tmp_path: Path) -> None:
    done = bactrian(verb, "postgresql://ann:s3cret@127.0.0.1:1/society", cwd=tmp_path)
    assert done.returncode == 2
    assert "s3cret" not in done.stdout + done.stderr
    assert "contains a password" in done.stderr


def test_an_address_is_divided_into_what_libpq_needs_and_what_the_run_is_called() -> None:
    address = read_address("postgres://ann@db:5433/society?run=one&sslmode=require&lease=20")
    assert address.connection == "postgresql://ann@db:5433/society?sslmode=require"
    assert (address.schema, address.lease) == ("bactrian_one", 20)


@pytest.mark.parametrize("query", ["run=No+good", "run=a;drop", "lease=0.1", "lease=soon"])
def test_a_name_or_a_lease_that_cannot_be_is_refused(query: str) -> None:
    with pytest.raises(InputError):
        read_address(f"postgresql://db/society?{query}")


def test_each_shared_run_has_a_copy_of_its_own_in_the_data_folder() -> None:
    one, two = (locate_run(f"postgresql://db/society?run={name}") for name in ("one", "two"))
    assert one != two
    assert str(find_address(one)) == "postgresql://db/society?run=one"
    assert find_address(one.with_name("other.db")) is None
