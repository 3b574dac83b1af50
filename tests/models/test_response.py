"""Answers are read the same however their bytes are cut, and what is no answer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bactrian.models.http_response import Compressed, NotHttp, Response, TooLarge

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: Chunked\r\n\r\n"
ANSWERS = {
    "counted": (OK + b"Content-Length: 5\r\nX: y\r\n\r\nwhole", b"whole"),
    "counted, empty": (OK + b"Content-Length: 0\r\n\r\n", b""),
    "chunked": (CHUNKED + b"4;name=value\r\nwhol\r\n1\r\ne\r\n0\r\n\r\n", b"whole"),
    "chunked, with trailers": (
        CHUNKED + b"A\r\nwhole\r\n\r\n!\r\n000\r\nX: y\r\nZ: 0\r\n\r\n",
        b"whole\r\n\r\n!",
    ),
    "after a 100": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nwhole", b"whole"),
    "after two": (b"HTTP/1.1 103 \r\nLink: x\r\n\r\nHTTP/1.1 100 \r\n\r\n" + CHUNKED + b"0\r\n\r\n", b""),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
}


def taken(
    pieces: Iterable[bytes], *, most: int = 1 << 20, tunnel: bool = False
) -> tuple[Response, bool | None]:
    """The response, and whether its connection is kept; None if it has not come to its end."""
    response = Response(most, lambda: None)
    taker = response.take(tunnel=tunnel)
    next(taker)
    for piece in pieces:
        assert not response.whole
        try:
            taker.send(piece)
        except StopIteration as end:
            return response, end.value
    return response, None


def body_of(response: Response) -> bytes:
    return asyncio.run(response.read_all())


@pytest.mark.parametrize(("answer", "body"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_the_same_wherever_it_is_cut(answer: bytes, body: bytes) -> None:
    cuts = [[answer[:at], answer[at:]] for at in range(1, len(answer))]
    for pieces in ([answer], [answer[at : at + 1] for at in range(len(answer))], *cuts):
        response, keep = taken(pieces)
        assert keep
        assert body_of(response) == body


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    cuts=st.lists(st.integers(1, 30), max_size=40),
    trailer=st.booleans(),
)
def test_chunks_come_out_the_same_however_the_bytes_are_cut(
    chunks: list[bytes], cuts: list[int], trailer: bool
) -> None:
    rest = CHUNKED + b"".join(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    rest += b"0\r\n" + (b"X-Trailer: 1\r\n" if trailer else b"") + b"\r\n"
    pieces: list[bytes] = []
    for cut in [*cuts, len(rest)]:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    response, keep = taken(filter(None, pieces))
    assert keep
    assert body_of(response) == b"".join(chunks)


@pytest.mark.parametrize("answer", [answer for answer, _ in ANSWERS.values()], ids=ANSWERS)
def test_half_an_answer_is_not_taken_for_a_whole_one(answer: bytes) -> None:
    for end in range(1, len(answer)):
        response, keep = taken([answer[:end]])
        assert keep is None
        assert not response.whole


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    response, keep = taken([OK + b"\r\nwho", b"le", b""])
    assert keep is False
    assert body_of(response) == b"whole"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 0",
        OK + b"Content-Length: 0\r\nConnection: close",
        OK + b"Content-Length: 0\r\nconnection:Keep-Alive, Close",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    ],
)
def test_a_connection_that_its_server_will_close_is_not_kept(head: bytes) -> None:
    _, keep = taken([head + b"\r\n\r\n" + (b"0\r\n\r\n" if b"chunked" in head else b"")])
    assert keep is False


@pytest.mark.parametrize("answer", [answer for answer, _ in ANSWERS.values()], ids=ANSWERS)
def test_a_connection_with_something_unasked_on_it_is_not_kept(answer: bytes) -> None:
    response, keep = taken([answer + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"])
    assert keep is False
    assert b"evil" not in body_of(response)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\x16\x03\x01",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        OK + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
        OK + b"X: " + b"y" * 70_000,
        OK + b"Content-Length: -4\r\n\r\n",
        OK + b"Content-Length: 4, 4\r\n\r\n",
        OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nfour",
        OK + b"Content-Length: \r\n\r\n",
        OK + b"Content-Length: 0x4\r\n\r\nfour",
        OK + b"Content-Length: \xb2\r\n\r\nfour",
        OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n\r\nfour",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"nope\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"0x5\r\nhello\r\n",
        CHUNKED + b"1_0\r\n",
        CHUNKED + b"f" * 17 + b"\r\n",
        CHUNKED + b"5\r\nhellooo\r\n",
        CHUNKED + b"5;" + b"x" * 70_000,
    ],
    ids=lambda answer: repr(answer[-30:]),
)
def test_what_is_no_http_is_told_at_once(answer: bytes) -> None:
    with pytest.raises(NotHttp):
        taken([answer])


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 2000\r\n\r\n", b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n"]
)
def test_no_more_is_taken_than_is_allowed(framing: bytes) -> None:
    with pytest.raises(TooLarge) as caught:
        taken([OK + framing, b"x" * 900, b"y" * 900, b"z" * 200], most=1000)
    assert caught.value.args == (1000, b"y" * 900)


def test_a_compressed_answer_is_refused_by_its_name_and_an_identical_one_taken() -> None:
    with pytest.raises(Compressed, match="gzip"):
        taken([OK + b"Content-Encoding: GZIP\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"])
    response, _ = taken([OK + b"Content-Encoding: identity\r\nContent-Length: 4\r\n\r\nfour"])
    assert body_of(response) == b"four"


def test_after_a_tunnel_is_granted_nothing_is_its_body() -> None:
    response, _ = taken([b"HTTP/1.1 200 Connected\r\nContent-Length: 9\r\n\r\n"], tunnel=True)
    assert response.whole


def test_a_header_is_found_in_any_case_and_all_its_values_with_it() -> None:
    response, _ = taken([OK + b"RETRY-after:  7 \r\nVia: a\r\nvia: B\r\nContent-Length: 0\r\n\r\n"])
    assert response.header("retry-after") == "7"
    assert response.header("via") == "a, B"
    assert response.header("etag") is None
