"""Hooks for schemathesis: episodes as JSON Lines, and rules that no JSON schema can express.

Loaded by `SCHEMATHESIS_HOOKS`. A schema cannot relate one number to another, so the hooks drop requests whose
options contradict each other (the docs say which); schemathesis sends everything else that the schema allows.
"""

from __future__ import annotations

import json
import re
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st

from kibitz.core.system.seed import LAST_SEED
from tests.live import record

IDS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
EPISODES = st.builds(lambda name, steps, note: record.lines(record.events(name, steps, note=note)), IDS,
                     st.integers(0, 3), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))  # fmt: skip
schemathesis.openapi.media_type("application/x-ndjson", EPISODES)


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Without integers near 2**63: schemathesis compares them as floats, which round up across a maximum there."""
    if _near_the_last_seed(case.body) or _has_long_arguments(case.body):
        return False
    return not isinstance(case.body, dict) or fits_together(case.body)


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    """Removes pauses, and the shortest preset name that the coverage phase puts into most requests: it does not
    exist, so only its 404 would be tested."""
    if isinstance(case.body, dict):
        for name in ("adviser", "opponent", "opponent_mode"):
            if case.body.get(name) == "llm:0":
                case.body[name] = None
        if type(case.body.get("pace")) in (int, float) and 0 < case.body["pace"] <= 60:
            case.body["pace"] = 0.001
    return case


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Closes what a request opened: a full server would answer 429 or 409 without checking the request."""
    opened = response.headers.get("x-session-id")
    address = response.request.url.split("?")[0].rsplit("/", 1)[0]
    if opened:
        requests.delete(f"{address}/mcp", headers={"Mcp-Session-Id": opened[0]}, timeout=60)
    if response.status_code == 202 and "seat_token" in response.text:
        stop = f"{address.split('/episodes')[0].removesuffix('/custom')}/custom/stop_episode"
        requests.post(stop, json={"episode_id": response.json()["episode_id"]}, timeout=60)


def _near_the_last_seed(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_near_the_last_seed, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and float(LAST_SEED) <= value < 2**65


def _has_long_arguments(value: Any) -> bool:
    """Integers of more than 64 bits in a tool's free arguments: the server refuses them, and their schema cannot."""
    if isinstance(value, list):
        return any(map(_has_long_arguments, value))
    if not isinstance(value, dict):
        return False
    long = "arguments" in value and re.search(r"\d{19}", json.dumps(value["arguments"], default=str)) is not None
    return long or any(map(_has_long_arguments, value.values()))


def fits_together(body: dict[str, Any]) -> bool:
    """Whether the options of a start or a reset do not contradict each other."""
    inner = body.get("options")
    beside = {name: value for name, value in body.items() if value is not None}
    options = {**(inner if isinstance(inner, dict) else {}), **beside}
    try:
        return _negotiation(options) and _pack(options) and _private(body)
    except (TypeError, AttributeError, ValueError):
        return True  # malformed on purpose, and refused for another reason


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _negotiation(options: dict[str, Any]) -> bool:
    few, many = _or(options.get("min_count"), 1), _or(options.get("max_count"), 4)
    accepts = _or(options.get("partner_threshold"), 0.55)
    low, high = accepts if isinstance(accepts, list) else (accepts, accepts)
    insists = _or(options.get("insist_threshold"), 0.5)
    mix = _or(options.get("partner"), "heuristic")
    counts = _or(options.get("context"), {}).get("counts", [few])
    weights = mix.values() if isinstance(mix, dict) else [1.0]
    within = all(few <= count <= many for count in counts)
    return bool(few <= many and low <= high and insists <= (low + high) / 2 and 0 < sum(weights) < 1e300 and within)


def _pack(options: dict[str, Any]) -> bool:
    """A pack defines the first position. A start ignores options that contradict it; `reset` refuses them."""
    begins = _or(options.get("random_start"), False) is not False or _or(options.get("captain_side"), "toss") != "toss"
    named = any(options.get(name) is not None for name in ("eval_pack_id", "split", "index"))
    return not (named and begins) or "captain_preset" in options


def _private(body: dict[str, Any]) -> bool:
    """A person's values stay private, so a game with a person is not `open`."""
    seats = [*_or(body.get("players"), []), body.get("captain_preset"), body.get("opponent_choice")]
    return not (body.get("open") is True and ("human" in seats or body.get("human_seat") is not None))
