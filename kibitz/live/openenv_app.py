"""The server as an ASGI app, for tools that expect one: `uvicorn kibitz.live.openenv_app:app`.

Usually, run `kibitz serve` instead. Without KIBITZ_TOKEN the app answers only this machine, whatever address
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
