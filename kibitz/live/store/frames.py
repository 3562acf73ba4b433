"""A text as a WebSocket frame of a server: unmasked, so the same bytes for everybody."""

from __future__ import annotations

import struct


def frame_of(text: str) -> bytes:
    """A whole text frame."""
    body = text.encode()
    size = len(body)
    if size < 126:
        return bytes((0x81, size)) + body
    if size < 1 << 16:
        return b"\x81\x7e" + struct.pack(">H", size) + body
    return b"\x81\x7f" + struct.pack(">Q", size) + body
