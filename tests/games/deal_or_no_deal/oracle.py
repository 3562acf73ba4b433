"""An independent implementation of the rules: plain Python, exact fractions, no JAX and no NumPy.

It shares nothing with the package, is slow on purpose and finds optima by exhaustive search. Callers
describe a partner as a `Style`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

PROPOSE, INSIST, AGREE, DISAGREE, END = range(5)
Triple = tuple[int, int, int]
Act = tuple[int, Triple]  # act type, and what the speaker keeps
NOTHING: Triple = (0, 0, 0)


def worth(utilities: Triple, items: Triple) -> int:
    return utilities[0] * items[0] + utilities[1] * items[1] + utilities[2] * items[2]


def rest_of(counts: Triple, items: Triple) -> Triple:
    return counts[0] - items[0], counts[1] - items[1], counts[2] - items[2]


def allocations(counts: Triple) -> Iterator[Triple]:
    """Every set of items that a seat may keep."""
    books, hats, balls = (range(n + 1) for n in counts)
    yield from product(books, hats, balls)


@dataclass(frozen=True)
class Game:
    counts: Triple
    utilities: tuple[Triple, Triple]
    seat: int = 0  # the seat to act
    max_turns: int = 10
    disagree_ends: bool = True
    turns_left: int = -1  # -1: all of them
    acts: tuple[int | None, int | None] = (None, None)  # the seats' last acts
    claims: tuple[Triple | None, Triple | None] = (None, None)  # what each seat last claimed
    offers: tuple[tuple[Triple, ...], tuple[Triple, ...]] = ((), ())  # every offer of each seat, newest first
    kept: tuple[Triple, Triple] | None = None  # the deal
    over: bool = False

    def __post_init__(self) -> None:
        if self.turns_left < 0:
            object.__setattr__(self, "turns_left", self.max_turns)

    def offer_stands(self, seat: int) -> bool:
        """Whether the other seat's last act was PROPOSE or INSIST."""
        return self.acts[1 - seat] in (PROPOSE, INSIST)

    def claimed(self, seat: int) -> Triple:
        """What a seat selects at END: its last claim, or the whole pool before its first act."""
        claim = self.claims[seat]
        return self.counts if claim is None else claim

    def is_legal(self, act: Act) -> bool:
        act_type, keep = act
        if act_type == AGREE:
            return self.offer_stands(self.seat) and not self.over
        if act_type == DISAGREE:
            return True
        (a, b, c), (most_a, most_b, most_c) = keep, self.counts
        inside = 0 <= a <= most_a and 0 <= b <= most_b and 0 <= c <= most_c
        return act_type in (PROPOSE, INSIST, END) and inside

    def play(self, act: Act) -> Game:
        """The game after an act of the seat to move; an illegal act loses the turn."""
        if self.over:
            return self
        me, other = self.seat, 1 - self.seat
        act_type, keep = act
        lost = not self.is_legal(act)
        spoken = DISAGREE if lost else act_type
        claim, deal, over = self.claims[me], None, False
        mine = self.offers[me]
        if spoken in (PROPOSE, INSIST):
            claim, mine = keep, (keep, *mine)
        elif spoken == AGREE:
            claim = rest_of(self.counts, self.claimed(other))
            deal, over = claim, True
        elif spoken == END:
            claim, over = keep, True
            if rest_of(self.counts, keep) == self.claimed(other):
                deal = keep
        elif not lost:
            over = self.disagree_ends
        left = self.turns_left - 1
        kept = None
        if deal is not None:
            rest = rest_of(self.counts, deal)
            kept = (deal, rest) if me == 0 else (rest, deal)
        return Game(
            self.counts,
            self.utilities,
            seat=other,
            max_turns=self.max_turns,
            disagree_ends=self.disagree_ends,
            turns_left=left,
            acts=(spoken, self.acts[1]) if me == 0 else (self.acts[0], spoken),
            claims=(claim, self.claims[1]) if me == 0 else (self.claims[0], claim),
            offers=(mine, self.offers[1]) if me == 0 else (self.offers[0], mine),
            kept=kept,
            over=over or left == 0,
        )

    @property
    def payoffs(self) -> tuple[int, int]:
        """What the deal pays each seat; zeros without one."""
        if self.kept is None:
            return 0, 0
        return worth(self.utilities[0], self.kept[0]), worth(self.utilities[1], self.kept[1])


@dataclass(frozen=True, eq=False)
class Style:
    """How a partner behaves, in exact fractions."""

    threshold: Fraction = Fraction(55, 100)  # share of its own pool that it accepts
    insist_gap: Fraction = Fraction(5, 100)  # how far an INSIST lowers it
    fall: Fraction = Fraction(0)  # how far it falls over the game: not at all on the first turn
    mirror: bool = False  # claims the share that was claimed from it, never less than its threshold
    noise: bool = False  # acts at random


def least_points(share: Fraction, pool: int) -> int:
    """The fewest whole points that are at least this share of the pool."""
    return -(-share.numerator * pool // share.denominator)


@cache
def greedy_claim(utilities: Triple, counts: Triple, points: int) -> Triple:
    """The most valued items, one at a time, until they are worth the points; never an item worth 0.

    Of equally valued types the first comes first.
    """
    kept = [0, 0, 0]
    singles = [kind for kind in sorted(range(3), key=lambda i: (-utilities[i], i)) for _ in range(counts[kind])]
    for kind in singles:
        if worth(utilities, (kept[0], kept[1], kept[2])) >= points or utilities[kind] == 0:
            break
        kept[kind] += 1
    return kept[0], kept[1], kept[2]


@cache
def demanded(style: Style, turns_left: int, max_turns: int, insisted: bool) -> Fraction:
    """The share of its pool that a partner demands, apart from mirroring."""
    gone = 1 - Fraction(turns_left, max_turns)
    return style.threshold - style.fall * gone - (style.insist_gap if insisted else 0)


def standard(game: Game, style: Style, insisted: bool) -> Fraction:
    """The share of its pool that the partner to act demands now."""
    share = demanded(style, game.turns_left, game.max_turns, insisted)
    if style.mirror and game.offer_stands(game.seat):
        utilities = game.utilities[game.seat]
        pool = worth(utilities, game.counts)
        asked_of_me = Fraction(worth(utilities, game.claimed(1 - game.seat)), max(pool, 1))
        share = max(share, asked_of_me) if pool else share
    return share


def partner_act(game: Game, style: Style, u: float = 0.0) -> Act:
    """The act of the partner in the seat to move."""
    if style.noise:
        return random_act(game, u)
    me, other = game.seat, 1 - game.seat
    utilities = game.utilities[me]
    pool = worth(utilities, game.counts)
    if game.offer_stands(me):
        offered = worth(utilities, rest_of(game.counts, game.claimed(other)))
        if offered >= least_points(standard(game, style, game.acts[other] == INSIST), pool):
            return AGREE, NOTHING
    asks = least_points(standard(game, style, False), pool)
    return PROPOSE, greedy_claim(utilities, game.counts, asks)


def random_act(game: Game, u: float) -> Act:
    """Uniform over the legal act types and over the counts, all from one uniform."""
    types = [PROPOSE, INSIST, AGREE, DISAGREE, END]
    if not game.offer_stands(game.seat):
        types.remove(AGREE)
    choices = []
    for n in (len(types), *(count + 1 for count in game.counts)):
        index = min(int(u * n), n - 1)
        u = u * n - index
        choices.append(index)
    return types[choices[0]], (choices[1], choices[2], choices[3])


def uniform_at(counts: Triple, index: int) -> float:
    """A uniform in the middle of one of `random_act`'s cells, for four legal acts and for five.

    Float32 and exact arithmetic then choose the same act. Indices run over 20 times the allocations.
    """
    cells = 20 * math.prod(count + 1 for count in counts)
    return (index % cells + 0.5) / cells


@dataclass
class Search:
    """The most that an agent can get from a partner whose answers it foresees, by exhaustive search."""

    style: Style
    agent: int = 0
    seen: dict[tuple[object, ...], int] = field(default_factory=dict)

    def best(self, game: Game) -> int:
        if game.over:
            return game.payoffs[self.agent]
        key = table_of(game, self.agent)
        if key not in self.seen:
            if game.seat == self.agent:
                self.seen[key] = max(self.best(game.play(act)) for act in all_acts(game))
            else:
                self.seen[key] = self.best(game.play(partner_act(game, self.style)))
        return self.seen[key]


def table_of(game: Game, agent: int) -> tuple[object, ...]:
    """Everything that the rest of the game depends on, against a partner without memory that never plays END.

    After its answer such a partner forgets the agent's act.
    """
    other = 1 - agent
    said = None if game.seat == agent else (game.acts[agent], game.claims[agent])
    return game.seat, game.turns_left, game.acts[other], game.claims[other], said


def all_acts(game: Game) -> list[Act]:
    offers = [(kind, keep) for kind in (PROPOSE, INSIST, END) for keep in allocations(game.counts)]
    return [act for act in [*offers, (AGREE, NOTHING), (DISAGREE, NOTHING)] if game.is_legal(act)]


def most_from_threshold(game: Game, share: Fraction, agent: int = 0) -> int:
    """The most that the agent can keep while the other seat gets at least this share of its own pool."""
    other = game.utilities[1 - agent]
    points = least_points(share, worth(other, game.counts))
    splits = ((keep, rest_of(game.counts, keep)) for keep in allocations(game.counts))
    return max(worth(game.utilities[agent], keep) for keep, rest in splits if worth(other, rest) >= points)


class Points(NamedTuple):
    mine: int
    theirs: int


def outcomes(counts: Triple, mine: Triple, theirs: Triple) -> list[Points]:
    return [Points(worth(mine, keep), worth(theirs, rest_of(counts, keep))) for keep in allocations(counts)]


def is_pareto(points: Points, possible: list[Points]) -> bool:
    """No other point is better for one seat and no worse for the other."""
    return not any(p != points and p.mine >= points.mine and p.theirs >= points.theirs for p in possible)


def best_nash(possible: list[Points]) -> int:
    return max(p.mine * p.theirs for p in possible)


UTILITIES: list[Triple] = [(a, b, c) for a, b, c in product(range(11), repeat=3) if a or b or c]


@dataclass
class Gambler:
    """The highest expected payoff against a partner of known style and unknown utilities.

    An exact expectimax over the sets of partner utilities that fit the partner's acts, from the uniform
    prior of the game. Feasible for pools of one item of each type.
    """

    style: Style
    counts: Triple = (1, 1, 1)
    max_turns: int = 10
    seen: dict[tuple[object, ...], int] = field(default_factory=dict)

    def best(self, mine: Triple, first: int) -> Fraction:
        game = Game(self.counts, (mine, NOTHING), seat=first, max_turns=self.max_turns)
        return Fraction(self._total(game, self.classes), len(UTILITIES))

    @cached_property
    def classes(self) -> tuple[tuple[Triple, int], ...]:
        """Classes of utilities that no offer distinguishes: one member of each, and their number."""
        found: dict[tuple[Act, ...], tuple[Triple, int]] = {}
        moments = range(1, self.max_turns + 1) if self.style.fall else (self.max_turns,)
        said: list[tuple[int | None, Triple | None]] = [(None, None)]
        said += [(kind, keep) for kind in (PROPOSE, INSIST) for keep in allocations(self.counts)]
        for theirs in UTILITIES:
            answers = []
            for left, (kind, keep) in product(moments, said):
                game = Game(
                    self.counts,
                    (NOTHING, theirs),
                    seat=1,
                    max_turns=self.max_turns,
                    turns_left=left,
                    acts=(kind, None),
                    claims=(keep, None),
                )
                answers.append(partner_act(game, self.style))
            example, number = found.get(tuple(answers), (theirs, 0))
            found[tuple(answers)] = example, number + 1
        return tuple(found.values())

    def _total(self, game: Game, classes: tuple[tuple[Triple, int], ...]) -> int:
        """Expected payoff times the number of utilities."""
        if game.over:
            return sum(number * game.payoffs[0] for _, number in classes)
        key = (table_of(game, 0), game.utilities[0], classes)
        if key not in self.seen:
            if game.seat == 0:
                value = max(self._total(game.play(act), classes) for act in all_acts(game))
            else:
                answers: dict[Act, list[tuple[Triple, int]]] = {}
                for theirs, number in classes:
                    act = partner_act(replace(game, utilities=(game.utilities[0], theirs)), self.style)
                    answers.setdefault(act, []).append((theirs, number))
                value = sum(self._total(game.play(act), tuple(group)) for act, group in answers.items())
            self.seen[key] = value
        return self.seen[key]
