"""The shortcut for acknowledgements reads exactly what the parser would have read."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from kibitz.live.http.sockets.fast_socket import MAX_BUFFER_BYTES, MAX_FRAGMENTS, FastSocket, ack_in, whole_messages
from tests.live import record
from tests.live.conftest import Serve, Served


def masked(text: bytes, opcode: Opcode = Opcode.TEXT, fin: bool = True) -> bytes:
    return Frame(opcode, text, fin=fin).serialize(mask=True)


@pytest.mark.parametrize(
    ("data", "seq"),
    [
        (masked(b'{"ack":0}'), 0),
        (masked(b'{"ack": 123456789}'), 123456789),
        (masked(b'{"ack":-1}'), None),
        (masked(b'{"ack":1234567890}'), None),
        (masked(b'{"ack":1}'), 1),
        (masked(b'{"ack":01}'), None),
        (masked(b'{"ack":1}', Opcode.BINARY), None),
        (masked(b'{"ack":1}', fin=False), None),
        (masked(b'{"ack":1}') + masked(b'{"ack":2}'), None),
        (masked(b'{"ack":1}')[:-1], None),
        (Frame(Opcode.TEXT, b'{"ack":1}').serialize(mask=False), None),
        (masked(b'{"ack":1,"x":2}'), None),
        (masked(b""), None),
        (b"", None),
        (b"\x81", None),
    ],
    ids=itertools.count(),  # the bytes are masked at random, and every worker must collect the same names
)
def test_only_one_whole_acknowledgement_takes_the_shortcut(data: bytes, seq: int | None) -> None:
    assert ack_in(data) == seq


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_the_end_of_a_message_is_found_whatever_its_size(size: int) -> None:
    data = masked(b"x" * size) + masked(b"pong", Opcode.PONG)
    assert whole_messages(data)
    assert not whole_messages(data[:-1]) and not whole_messages(data + b"\x81")
    assert not whole_messages(masked(b"x" * size, fin=False)), "the rest of the message follows"


@contextmanager
def watching(served: Served, query: str = "") -> Iterator[socket.socket]:
    """A WebSocket whose frames the test writes itself."""
    url = urlsplit(served.url)
    request = (
        f"GET /custom/ws{query} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    with closing(socket.create_connection((str(url.hostname), int(url.port or 80)), 60)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        yield connection


def expect(connection: socket.socket, end: bytes) -> None:
    received = b""
    while end not in received:
        more = connection.recv(1 << 16)
        assert more, received
        received += more


def test_acknowledgements_count_whole_split_or_joined_and_others_end_the_connection(serve: Serve) -> None:
    served = serve("--no-warm")
    begun = record.events("ep-1", steps=3)
    answer = httpx.post(f"{served.url}/custom/events", content=record.lines(begun[:3]), headers=record.KEY, timeout=60)
    assert answer.status_code == 200, answer.text
    with watching(served, "?episode_id=ep-1") as connection:
        expect(connection, b'"seq":2')
        connection.sendall(masked(b'{"ack":1}'))
        connection.sendall(masked(b"still in step", Opcode.PING))
        expect(connection, b"still in step")
        split = masked(b'{"ack":2}')
        connection.sendall(split[:5])
        connection.sendall(split[5:] + masked(b'{"ack":2}') + masked(b"and again", Opcode.PING))
        expect(connection, b"and again")
        connection.sendall(masked(b'{"ack":2}'))
        connection.sendall(masked(b'{"ack":-2}'))
        expect(connection, b"ack must be an integer")


def test_a_message_of_endless_empty_fragments_ends_the_connection(served: Served) -> None:
    with watching(served) as connection:
        expect(connection, b" 101 ")
        more = masked(b"", Opcode.CONT, fin=False)
        connection.sendall(masked(b"", fin=False) + more * (MAX_FRAGMENTS - 1) + masked(b"so far so good", Opcode.PING))
        expect(connection, b"so far so good")
        connection.sendall(more)
        expect(connection, CloseCode.MESSAGE_TOO_BIG.to_bytes(2) + b"a message may have")


def test_pings_fill_no_buffer_that_their_sender_does_not_read() -> None:
    async def most_held() -> int:
        """The largest buffer while 20,000 pings arrive and the client reads nothing."""
        here, there = socket.socketpair()
        for end in (here, there):
            end.setblocking(False)
        pinged: Any = FastSocket.__new__(FastSocket)
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=here)
        pinged.transport, pinged.conn, sizes = transport, ServerProtocol(state=State.OPEN), [0]
        ping = masked(b"x" * 125, Opcode.PING)
        for _ in range(20_000):
            pinged.conn.receive_data(ping)
            pinged.handle_ping()
            sizes.append(transport.get_write_buffer_size())
        transport.abort()
        there.close()
        return max(sizes)

    assert MAX_BUFFER_BYTES < asyncio.run(most_held()) < 2 * MAX_BUFFER_BYTES
