"""The server as an ASGI app, for tools that expect one: `uvicorn kibitz.live.openenv_app:app`.

Usually, run `kibitz serve` instead, which also limits connections and drops readers that do not read sooner; the same
variables (`KIBITZ_STORE`, `KIBITZ_TOKEN` and so on) set its options.
Without a token the app answers only this machine, whatever address the tool listens on.
"""

from __future__ import annotations

from dataclasses import replace

from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig

_config = LiveConfig.from_environment()

app = create_app(replace(_config, host="0.0.0.0" if _config.token else "127.0.0.1"))
