"""What a tournament found: ratings, head-to-head records and costs, as plain data and as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.bots import NO_HINTS
from kibitz.core.play.events import mostly_fallback
from kibitz.core.statistics import finite, holm, mean_ci95, win_share_ci95, win_share_p
from kibitz.studies.reports.plot import intervals
from kibitz.studies.reports.report import Column, Figure, Interval, Report, ReportTable, Verdict
from kibitz.studies.tournaments.ratings import DRAWN_GAMES, Rating, rate

# an answer came, but no legal act
ILLEGAL_KINDS = ("illegal", "not_json", "wrong_shape", "empty")
Floats = NDArray[np.float64]


@dataclass
class _Costs:
    """One player's decisions on the host, in all of its games. Bots in compiled batches cost nothing and never fail."""

    turns: int = 0
    fallbacks: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0

    def add(self, tally: dict[str, Any]) -> None:
        self.turns += tally["turns"]
        self.fallbacks += tally["fallbacks"]
        self.failures.update(tally["failures"])
        self.tokens += tally["prompt_tokens"] + tally["completion_tokens"]
        self.money += tally["money"]
        self.seconds += tally["seconds"]

    def share(self, count: int) -> float:
        return count / self.turns if self.turns else 0.0


class _Results:
    """Pairs of games by pairing; a pair counts if both games ended and each player played most of its own turns."""

    def __init__(self, players: Sequence[str], episodes: int, rows: Iterable[dict[str, Any]]) -> None:
        self.players = list(players)
        self.costs = {name: _Costs() for name in players}
        self.games = dict.fromkeys(players, 0)
        self.replaced = dict.fromkeys(players, 0)  # games that the fallback mostly played
        returns = {pairing: np.full((episodes, 2), np.nan) for pairing in combinations(players, 2)}
        for row in rows:
            names, first = (row["one"], row["other"]), row["first"]
            kept = row["returns"][: episodes - first]
            for name, tally in zip(names, row.get("tallies", ()), strict=False):
                self.costs[name].add(tally)
                if mostly_fallback(tally["fallbacks"], tally["turns"]):
                    self.replaced[name] += 1
                    kept = []
            for name in names:
                self.games[name] += len(row["returns"][: episodes - first])
            if kept:
                returns[names][first : first + len(kept)] = kept
        self.pairs: dict[tuple[str, str], Floats] = {}  # f64[pairs, games of the pair, players]
        for pairing, found in returns.items():
            pairs = found.reshape(-1, 2, 2)
            self.pairs[pairing] = pairs[~np.isnan(pairs).any(axis=(1, 2))]

    def of(self, one: str, other: str) -> Floats:
        """f64[pairs, 2, 2]: the pairs of a pairing from the first's point of view."""
        return self.pairs[one, other] if (one, other) in self.pairs else self.pairs[other, one][:, :, ::-1]

    def all_of(self, name: str) -> Floats:
        return np.concatenate([self.of(name, other) for other in self.players if other != name])

    def is_rated(self, name: str) -> bool:
        costs = self.costs[name]
        return bool(len(self.all_of(name))) and not mostly_fallback(costs.fallbacks, costs.turns)

    def ratings(self) -> dict[str, Rating]:
        rated = [name for name in self.players if self.is_rated(name)]
        points = {
            (rated.index(one), rated.index(other)): won(pairs)
            for (one, other), pairs in self.pairs.items()
            if one in rated and other in rated
        }
        if len(rated) < 2 or not any(map(len, points.values())):
            return {}
        return dict(zip(rated, rate(points, len(rated)), strict=True))


def won(pairs: Floats) -> Floats:
    """The first player's share of the games of each pair; a tie is half a win."""
    return np.asarray(np.where(pairs[..., 0] == pairs[..., 1], 0.5, pairs[..., 0] > pairs[..., 1]).mean(axis=1))


@dataclass(frozen=True)
class Standings:
    """Shares and means are over the games that count."""

    players: list[dict[str, Any]]  # best first
    matrix: dict[str, dict[str, dict[str, Any]]]  # by row and opponent
    points: dict[tuple[str, str], Floats]  # what the first of two players won of each pair of games, both ways round

    def as_dict(self) -> dict[str, Any]:
        return {"players": self.players, "matrix": self.matrix}


def standings(
    players: Sequence[str], episodes: int, rows: Iterable[dict[str, Any]], hints_from: Mapping[str, str] | None = None
) -> Standings:
    """From the rows of a tournament's record. `hints_from` says whose hints a player heard; default: none."""
    results = _Results(players, episodes, rows)
    rated = results.ratings()
    heard = dict.fromkeys(players, NO_HINTS) | dict(hints_from or {})
    listed = [_player(results, name, rated.get(name)) | {"hints_from": heard[name]} for name in players]
    listed.sort(key=lambda one: (not one["rated"], -(one["rating"] or 0.0), one["name"]))
    points = {(a, b): won(results.of(a, b)) for a in players for b in players if a != b}
    matrix = {
        one: {other: _record(results.of(one, other)) for other in players if other != one}
        for one in (row["name"] for row in listed)
    }
    return Standings(finite(listed), finite(matrix), points)


def _record(pairs: Floats) -> dict[str, Any]:
    share, share_ci95 = win_share_ci95(won(pairs))
    mean, mean_ci = mean_ci95(pairs[..., 0].mean(axis=1))
    return {
        "games": 2 * len(pairs),
        "win_share": share,
        "win_share_ci95": list(share_ci95),
        "return_mean": mean,
        "return_ci95": list(mean_ci),
    }


def _player(results: _Results, name: str, rating: Rating | None) -> dict[str, Any]:
    costs = results.costs[name]
    illegal = sum(costs.failures[kind] for kind in ILLEGAL_KINDS)
    return {
        "name": name,
        "rating": None if rating is None else rating.value,
        "rating_ci95": None if rating is None else list(rating.ci95),
        **_record(results.all_of(name)),
        "games_played": results.games[name],
        "games_by_fallback": results.replaced[name],
        "illegal_share": costs.share(illegal),
        "fallback_share": costs.share(costs.fallbacks),
        "failures": dict(sorted(costs.failures.items())),
        "tokens": costs.tokens,
        "money": costs.money,
        "seconds": costs.seconds,
        "rated": rating is not None,
    }


def report(found: Standings, title: str, facts: dict[str, str], about: dict[str, Any]) -> Report:
    """`about` is what the result says besides the standings: `game`, `seed`, `unfinished` and so on."""
    rated = [one for one in found.players if one["rated"]]
    replaced = [one["name"] for one in found.players if not one["rated"] and one["games_by_fallback"]]
    summary = f"{rated[0]['name']} leads {len(found.players)} players." if rated else "No player could be rated."
    earner = max(rated, key=lambda one: one["return_mean"], default=None)
    if earner is not None and earner["return_mean"] > rated[0]["return_mean"]:
        means = f"{earner['return_mean']:.2f} a game against {rated[0]['return_mean']:.2f}"
        summary += f" {earner['name']} earns most: {means}."
    if replaced:
        summary += f" Not rated, because the fallback mostly played for them: {', '.join(replaced)}."
    if about["unfinished"]:
        summary += f" The tournament is unfinished, because {about['unfinished']}."
    parts: list[ReportTable | Figure] = []
    if rated:
        lines = [(one["name"], one["rating"], *(one["rating_ci95"])) for one in rated]
        parts.append(Figure("Ratings", intervals(lines, "rating (Elo's scale)")))
    parts += [_players_table(found.players), _matrix_table(found)]
    notes = [
        "Every deal is played twice with the same luck and the seats swapped; each pair is one observation.",
        "A win is a higher return than the opponent's, so ratings say who out-earns whom. Where both can gain, the "
        "return says who earns most.",
        "Ratings are Bradley-Terry's on Elo's scale (mean 1500; 400 points are odds of ten to one), with "
        f"{DRAWN_GAMES:g} drawn game added to every pairing. Intervals are 95 % and come from a bootstrap over pairs.",
        "Tokens and money include those of failed answers. Seconds are the time that decisions took; bots in compiled "
        "batches count as 0.",
    ]
    return Report(title, summary, facts, _verdicts(rated, found.points), parts, notes, about | found.as_dict())


def _verdicts(rated: list[dict[str, Any]], points: dict[tuple[str, str], Floats]) -> list[Verdict]:
    """Neighbours in the order, against each other; a family of comparisons."""
    neighbours = [(one["name"], other["name"]) for one, other in pairwise(rated)]
    between = [points[pair] for pair in neighbours]
    p_values = holm(list(map(win_share_p, between)))
    verdicts = []
    for (one, other), games, p in zip(neighbours, between, p_values, strict=True):
        share = f"{100 * games.mean():.1f} % of {2 * len(games):,} games" if len(games) else "no games"
        shown = bool(p < 0.05)
        if not shown:
            text = f"Between {one} and {other} nothing is shown: {one} won {share}."
        elif games.mean() > 0.5:
            text = f"{one} beats {other}: it won {share} (p = {p:.2g}, Holm)."
        else:
            text = f"{other} beats {one}, although it is rated lower: {one} won {share} (p = {p:.2g}, Holm)."
        verdicts.append(Verdict(text, shown))
    return verdicts


def _players_table(players: list[dict[str, Any]]) -> ReportTable:
    columns = [
        Column("player"), Column("rating", "number", 0), Column("games", "count"), Column("win share", "percent"),
        Column("return", "number"), Column("illegal", "percent"), Column("fallback", "percent"),
        Column("tokens", "count"), Column("money", "money"), Column("seconds", "seconds"), Column("hints from"),
        Column("rated"),
    ]  # fmt: skip
    rows = []
    for one in players:
        rating = None if one["rating"] is None else Interval(one["rating"], *one["rating_ci95"])
        rows.append(
            [
                one["name"], rating, one["games"], _interval(one, "win_share"), _interval(one, "return_mean", "return"),
                one["illegal_share"], one["fallback_share"], one["tokens"], one["money"], one["seconds"],
                one["hints_from"],
                "yes" if one["rated"] else "no: played by its fallback" if one["games_by_fallback"] else "no",
            ]
        )  # fmt: skip
    return ReportTable("Players", columns, rows)


def _matrix_table(found: Standings) -> ReportTable:
    names = [one["name"] for one in found.players]
    columns = [Column("won by"), *(Column(f"against {name}", "percent") for name in names)]
    rows = [
        [one, *(_interval(found.matrix[one][other], "win_share") if one != other else None for other in names)]
        for one in names
    ]
    return ReportTable(
        "Head to head", columns, rows, "The row's share of the games against the column; a tie is half a win."
    )


def _interval(record: dict[str, Any], name: str, prefix: str = "") -> Interval | None:
    value = record[name]
    return None if value is None else Interval(value, *record[f"{prefix or name}_ci95"])
