"""The same match as a straightforward NumPy batch: the baseline of the benchmark.

One array per field and a Python loop over deliveries. It plays default captains and everything but super
overs, and reads the same tables; a test compares the statistics of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.captains import bots
from kibitz.games.cricket.model.delivery import FIRST_SPIN, K, phase_of
from kibitz.games.cricket.teams.ratings import VARIANTS

Ints = NDArray[np.int64]


def host(tree: Any) -> Any:
    return type(tree)(*(host(x) if hasattr(x, "_fields") else np.asarray(x) for x in tree))


def pick(rng: np.random.Generator, cumulative: Any, size: int) -> Ints:
    return np.asarray((rng.random(size)[:, None] >= np.asarray(cumulative)[None, :-1]).sum(1))


def play(settings: Any, matches: int, seed: int) -> tuple[int, Ints, Ints]:
    """The number of balls bowled, and totals and wickets [match, innings]."""
    s, rng, n = host(settings), np.random.default_rng(seed), matches
    model, sides, par = s.model, s.sides, s.par
    era, balls_in, total_balls = int(s.era), 6 * int(s.overs), 0
    teams = np.stack([rng.permutation(len(sides.keeper))[:2] for _ in range(n)])
    match_level = rng.standard_normal(n) * model.level_sd[era, 0]
    totals, wickets_lost = np.zeros((n, 2), int), np.zeros((n, 2), int)
    intents = bots.intents().reshape(bots.RISK_STEPS, 4)
    plans, fields = (t.reshape(shape) for t, shape in zip(bots.bowling(bots.Style()), ((2, 3, 5), (3, 3)), strict=True))
    for inn in (0, 1):
        bat, field_side = teams[:, inn], teams[:, 1 - inn]
        level = match_level + rng.standard_normal(n) * model.level_sd[era, 1]
        orders = sides.orders.reshape(-1, VARIANTS, 20)[field_side, rng.integers(VARIANTS, size=n)]
        score, wickets, legal = np.zeros(n, int), np.zeros(n, int), np.zeros(n, int)
        striker, other, faced, far = np.zeros(n, int), np.ones(n, int), np.zeros(n, int), np.zeros(n, int)
        free, live = np.zeros(n, bool), np.ones(n, bool)
        while live.any():
            total_balls += int(live.sum())
            at = np.minimum(legal, balls_in - 1)
            over = par.over[at]
            phase = phase_of(over)
            bowler = orders[np.arange(n), np.minimum(at // 6, 19)]
            kind = sides.types[field_side * 11 + bowler]
            spin, early = kind >= FIRST_SPIN, at < s.powerplay
            runs_left = np.maximum(par.runs_left.reshape(3, 121)[era][at], 1)
            needed = np.maximum(totals[:, 0] + 1 - score, 1)
            log_rate_needed = np.clip(np.log(needed / runs_left), -1.2, 1.2) if inn else np.zeros(n)
            excess = np.clip(wickets - par.wickets[at], -3, 4)
            risk = np.asarray(bots.STAGE)[over] + bots.URGENCY * (1 - int(s.overs) / 20)
            risk = (
                risk - bots.CAUTION * excess + (bots.CHASE * np.clip(log_rate_needed, *bots.CHASE_LIMITS) if inn else 0)
            )
            place = (risk - bots.MIN_RISK) * ((bots.RISK_STEPS - 1) / (bots.MAX_RISK - bots.MIN_RISK))
            row = np.clip(np.round(place), 0, bots.RISK_STEPS - 1).astype(int)
            intent = (rng.random(n)[:, None] >= intents[row]).sum(1)
            plan = (rng.random(n)[:, None] >= plans[spin.astype(int), phase]).sum(1)
            field = (rng.random(n)[:, None] >= fields[phase]).sum(1)
            choice = (((spin * 2 + early) * 5 + intent) * 6 + plan) * 4 + field
            logits = (
                model.base.reshape(3, 2, 20, K)[era, inn, over]
                + model.tactics.reshape(-1, K)[choice]
                + sides.batters.reshape(-1, K)[(bat * 11 + striker) * 6 + kind]
                + sides.bowlers.reshape(-1, K)[(field_side * 11 + bowler) * 3 + phase]
                + np.exp(-0.25 * faced)[:, None] * model.settle[0]
                + (np.minimum(faced, 60) / 30)[:, None] * model.settle[1]
                + level[:, None] * model.level
                + np.minimum(log_rate_needed, 0)[:, None] * model.pressure[0]
                + np.maximum(log_rate_needed - 0.3, 0)[:, None] * model.pressure[1]
                + excess[:, None] * model.excess_wickets
                + free[:, None] * model.free_hit
            )
            weight = np.exp(logits)
            share = model.run_out[era][over]
            weight[:, 6] *= np.where(free, share, 1) * model.tail.reshape(3, 10)[era, np.minimum(wickets, 9)]
            cumulative = np.cumsum(weight, axis=1)
            outcome = (rng.random(n)[:, None] * cumulative[:, -1:] >= cumulative[:, :-1]).sum(1)
            out = outcome == 6
            run_out = out & ((rng.random(n) < share) | free)
            completed = pick(rng, model.run_out_runs, n)
            runs = np.where(outcome == 5, 6, np.where(outcome < 5, outcome, 0))
            runs = np.where(run_out, completed, runs)
            runs = np.where(outcome == 7, 1 + pick(rng, model.wide_runs, n), runs)
            struck = pick(rng, model.no_ball_runs, n)
            runs = np.where(outcome == 8, 1 + np.where(struck == 5, 6, struck), runs)
            runs = np.where(outcome == 9, 1 + pick(rng, model.bye_runs, n), runs)
            extra = (outcome == 7) | (outcome == 8)
            counts = ~extra
            striker_out = ~run_out | (rng.random(n) < model.striker_out)
            new = np.minimum(wickets + 2, 10)
            faced = faced + (outcome != 7)
            gone, gone_far = live & out & striker_out, live & out & ~striker_out
            striker, faced = np.where(gone, new, striker), np.where(gone, 0, faced)
            other, far = np.where(gone_far, new, other), np.where(gone_far, 0, far)
            score, wickets, legal = score + runs * live, wickets + (out & live), legal + (counts & live)
            free = (outcome == 8) | (free & (outcome == 7))
            swap = ((runs - extra + run_out) % 2 == 1) ^ (counts & (legal % 6 == 0))
            striker, other = np.where(swap, other, striker), np.where(swap, striker, other)
            faced, far = np.where(swap, far, faced), np.where(swap, faced, far)
            live &= (wickets < 10) & (legal < balls_in) & ((score <= totals[:, 0]) if inn else True)
        totals[:, inn], wickets_lost[:, inn] = score, wickets
    return total_balls, totals, wickets_lost
