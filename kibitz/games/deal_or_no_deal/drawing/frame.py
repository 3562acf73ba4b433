"""Frames for pages and terminals, and lines of commentary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kibitz.core.game import Summary
from kibitz.games.deal_or_no_deal.rules import ACT_NAMES, AGREE, DISAGREE, END, INSIST, SILENT, State
from kibitz.games.deal_or_no_deal.words import called, sentence, share


def ints(items: Any) -> list[int]:
    return [int(x) for x in items]


def private(settings: Any, state: State, seat: int) -> dict[str, Any]:
    """What this seat knows and the public does not."""
    revealed = {"partner_utilities": ints(state.utilities[1 - seat])} if bool(settings.reveal) else {}
    return {"utilities": ints(state.utilities[seat])} | revealed


def frame(settings: Any, state: State) -> dict[str, Any]:
    """Public facts only."""
    acts = [int(act) for act in state.last_acts]
    return {
        "counts": ints(state.counts),
        "claims": [ints(claim) if act != SILENT else None for claim, act in zip(state.claims, acts, strict=True)],
        "last_acts": [None if act == SILENT else ACT_NAMES[act] for act in acts],
        "seat": int(state.seat),
        "turns_left": int(state.turns_left),
        "max_turns": int(settings.max_turns),
        "over": bool(state.over),
        "deal": bool(state.deal),
    }


def summary(drawn: Mapping[str, Any]) -> Summary:
    """Points are private until the end, so the level is the share of the items that seat 0 would get."""
    claims = drawn["claims"]
    said = claims[1 - drawn["seat"]]  # by the seat that spoke last
    if said is None:
        return Summary()
    share = sum(said) / max(sum(drawn["counts"]), 1)
    return Summary(level=share if drawn["seat"] == 1 else 1 - share)


def commentary(event: Mapping[str, Any], drawn: Mapping[str, Any]) -> str:
    """A line of commentary for an event, or "". It contains no private value."""
    payload = event["payload"]
    if event["type"] == "episode.started":
        return f"On the table: {share(payload['frame']['counts'])}."
    if event["type"] == "step":
        seat, (act_type, *kept) = next((i, act) for i, act in enumerate(payload["acts"]) if act is not None)
        who = sentence(called(event)[seat])
        if act_type == AGREE:
            return f"{who} agrees. It is a deal."
        if act_type == DISAGREE:
            return f"{who} disagrees."
        if act_type == END:
            return f"{who} ends the talk and selects {share(kept)}."
        return f"{who} {'insists on' if act_type == INSIST else 'asks for'} {share(kept)}."
    if event["type"] == "episode.ended":
        mine, theirs = payload["returns"]
        if not payload["scores"]["agreement"][0]:
            return "No deal: neither side gets anything."
        one, other = called(event)
        return f"{sentence(one)} takes {mine:g} {'point' if mine == 1 else 'points'}, {other} takes {theirs:g}."
    return ""
