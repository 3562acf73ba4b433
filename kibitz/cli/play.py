"""`kibitz play`: a person in seat 0, at the terminal."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, Contexts, GameName, GameOptions, Json, OneSeed, Opponent, read_game
from kibitz.core.errors import BadInput
from kibitz.core.system.seed import fresh_seed


def play(
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = None,
    adviser: Annotated[
        str | None, typer.Option("--adviser", help="Player who advises you; llm:auto needs no key")
    ] = None,
    contexts: Contexts = "uniform",
    seed: OneSeed = None,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Play an episode at the terminal against any player."""
    from kibitz.core.bots import seated
    from kibitz.core.play.episode import play_episode
    from kibitz.core.play.events import Event, spoken
    from kibitz.core.play.resolve import bot_named
    from kibitz.evaluate.tally import Tallies
    from kibitz.players import player_named
    from kibitz.players.human import HumanPlayer

    record, chosen = read_game(game, options, contexts)
    opponent = opponent or record.default_players[1]
    if opponent == "human":
        raise BadInput("Only seat 0 can be human at a terminal; choose another --opponent.")
    if adviser == "human":
        raise BadInput("A human cannot be the adviser here; name a player such as llm:auto.")
    console = output.err if as_json else output.out  # standard output carries only JSON

    def ask(prompt: str) -> str:
        console.print(prompt, end="", markup=False)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    me, other = HumanPlayer(record, ask, say), player_named(record, opponent)
    bot = bot_named(record, opponent)
    advisers = {} if adviser is None else {0: player_named(record, adviser)}
    advising = None if adviser is None else bot_named(record, adviser)
    settings = seated(chosen.settings(), {1: bot} if bot else {}, {0: advising} if advising else {})

    def on_event(event: Event) -> None:
        if event.type == "episode.started":
            say(f"You are seat 0, {other.name} is seat 1.")
        elif line := spoken(event):
            say(line)

    tallies = Tallies()
    say("Setting up the table ...")
    drawn = fresh_seed() if seed is None else seed
    try:
        observers = (on_event, tallies.observe)
        played = play_episode(record, settings, [me, other], seed=drawn, observers=observers, advisers=advisers)
    except EOFError:
        raise BadInput("The input ended before the game was over; answer every question to finish it.") from None
    if as_json:
        cost = tallies.seats[1].as_dict()
        ended = dict(played.events[-1].payload)
        print(json.dumps(ended | {"players": ["human", opponent], "opponent": cost}, allow_nan=False))
    else:
        possible = f" out of a possible {played.scores['ceiling'][0]:g}" if "ceiling" in played.scores else ""
        say(f"You scored {played.returns[0]:g}{possible} (seed {drawn}).")
        if spent := output.spent(tallies.seats[1].as_dict()):
            say(f"{other.name} {spent}.")
