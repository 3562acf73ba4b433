"""What a sentence may tell everyone: no addresses of other servers and no folders of this machine."""

from __future__ import annotations

import re

ADDRESSES = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>()\[\],;]*[^\s'\"<>()\[\],;:.]"  # a URL
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f]*:[0-9a-f:.]+\](?::\d+)?"  # an IP address
    r"|\b(?:localhost|[a-z][\w-]*(?:\.[\w-]+)+):\d{2,5}\b",  # a host with its port
    re.IGNORECASE,
)
PATHS = re.compile(r"(?<![\w.:/}])~?(?:/[^\s/'\"<>(),;:]+)+/([^\s/'\"<>(),;:]+)")


def public_text(sentence: str) -> str:
    """The same sentence with only the last part of each path, and no addresses."""
    return PATHS.sub(r"\1", ADDRESSES.sub("a server", sentence))
