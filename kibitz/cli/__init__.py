"""The `kibitz` command: one module per command group, shared flags in `options`, tables and progress in `output`.

Every command prints a table for people or, with `--json`, one object for machines. No game logic lives here.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kibitz import __version__
from kibitz.cli import bench, cricket, demo, live, llm, new_game, play, teach, train
from kibitz.cli.setup import docs, doctor, extras, listing
from kibitz.cli.setup.helping import WithKeys, WithPlayers
from kibitz.cli.studies import compare, evaluate, export, hints, judge, study, tournament
from kibitz.core.errors import BadInput
from kibitz.core.system import interrupt

app = typer.Typer(
    name="kibitz",
    help="Strategy games in which agents learn with an adviser in their ear and anyone can watch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kibitz {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command(cls=WithPlayers)(evaluate.evaluate)
app.command(cls=WithPlayers)(tournament.tournament)
app.command()(compare.compare)
app.command()(export.export)
app.command(cls=WithPlayers)(play.play)
app.command(cls=WithKeys)(train.train)
app.command()(demo.demo)
app.command("new-game")(new_game.new_game)
app.command()(docs.docs)
app.command()(doctor.doctor)
app.add_typer(listing.app, name="list")
app.add_typer(bench.app, name="bench")
app.add_typer(cricket.app, name="cricket")
app.add_typer(llm.app, name="llm")
app.add_typer(hints.app, name="hints")
app.add_typer(judge.app, name="judge")
app.add_typer(teach.app, name="teach")
app.add_typer(study.app, name="study")
live.add_to(app, bench.app)


def main() -> None:
    """Runs the command. A user's mistake prints one sentence and exits with code 2."""
    try:
        code = app(standalone_mode=False)
    except BadInput as error:
        print(f"kibitz: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if not (text := extras.sentence(error)):
            raise
        print(f"kibitz: {text}", file=sys.stderr)
        sys.exit(2)
    except typer.TyperException as error:
        if text := error.format_message().strip():  # empty when Typer has printed the help instead
            print(f"kibitz: {text}{'' if text.endswith(('.', '?', '!')) else '.'} Try --help.", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        code = interrupt.EXIT_CODE
    if code == interrupt.EXIT_CODE:  # Typer also returns it for Ctrl-C
        interrupt.finishing()
        print("kibitz: stopped.", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)
