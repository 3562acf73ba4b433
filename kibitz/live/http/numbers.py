"""JSON knows one kind of number: 7.0 is 7, and a strict model may say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

EXACT = 2**53  # as far as every JSON reader can count


def loads(text: str | bytes) -> Any:
    return json.loads(text, parse_float=_number)


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < EXACT else value


class JsonRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = loads(await self.body())
        return self._json


class JsonRoute(APIRoute):
    """Bodies are read by `loads`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await inner(JsonRequest(request.scope, request.receive))

        return handle
