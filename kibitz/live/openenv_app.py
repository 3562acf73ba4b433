"""The server as an ASGI app, for tools that look for one: `uvicorn kibitz.live.openenv_app:app`.

`kibitz serve` is the usual way. Without KIBITZ_TOKEN only this machine is answered, whatever address
the tool listens on.
"""

from __future__ import annotations

import os

from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig

_token = os.environ.get("KIBITZ_TOKEN", "")

app = create_app(
    LiveConfig(
        host="0.0.0.0" if _token else "127.0.0.1", token=_token, store=os.environ.get("KIBITZ_STORE", "kibitz.db")
    )
)
