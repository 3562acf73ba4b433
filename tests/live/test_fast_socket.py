"""The shortcut for acknowledgements reads exactly what the parser would have read."""

from __future__ import annotations

import socket
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.frames import Frame, Opcode

from kibitz.live.http.fast_socket import ack_in, whole_messages
from tests.live import record
from tests.live.conftest import Serve


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
)
def test_only_one_whole_acknowledgement_takes_the_shortcut(data: bytes, seq: int | None) -> None:
    assert ack_in(data) == seq


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_the_end_of_a_message_is_found_whatever_its_size(size: int) -> None:
    data = masked(b"x" * size) + masked(b"pong", Opcode.PONG)
    assert whole_messages(data)
    assert not whole_messages(data[:-1]) and not whole_messages(data + b"\x81")
    assert not whole_messages(masked(b"x" * size, fin=False)), "the rest of the message follows"


def test_acknowledgements_count_whole_split_or_joined_and_others_end_the_connection(serve: Serve) -> None:
    served = serve("--no-warm")
    begun = record.events("ep-1", steps=3)
    answer = httpx.post(f"{served.url}/custom/events", content=record.lines(begun[:3]), headers=record.KEY, timeout=60)
    assert answer.status_code == 200, answer.text
    url = urlsplit(served.url)
    request = (
        f"GET /custom/ws?episode_id=ep-1 HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    with closing(socket.create_connection((str(url.hostname), int(url.port or 80)), 60)) as connection:

        def expect(end: bytes) -> None:
            received = b""
            while end not in received:
                more = connection.recv(1 << 16)
                assert more, received
                received += more

        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        expect(b'"seq":2')
        connection.sendall(masked(b'{"ack":1}'))
        connection.sendall(masked(b"still in step", Opcode.PING))
        expect(b"still in step")
        split = masked(b'{"ack":2}')
        connection.sendall(split[:5])
        connection.sendall(split[5:] + masked(b'{"ack":2}') + masked(b"and again", Opcode.PING))
        expect(b"and again")
        connection.sendall(masked(b'{"ack":2}'))
        connection.sendall(masked(b'{"ack":-2}'))
        expect(b"ack must be an integer")
