"""Help that ends with what a command's options may name: players, and the keys of a config."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class WithPlayers(TyperCommand):
    """A command that takes players. Its help loads the games, so that it lists those of other packages too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.epilog = "\n\n".join(self.paragraphs())
        super().format_help(ctx, formatter)

    def paragraphs(self) -> list[str]:
        from kibitz.core.play.resolve import ANY_PATH
        from kibitz.games import get_game, usable_games

        games = [get_game(name) for name in usable_games()]
        return [
            f"Players of {game.name}: {', '.join([*ANY_PATH.forms(game), *sorted(game.aliases)])}." for game in games
        ]


class WithKeys(WithPlayers):
    """A command that takes keys of a training config as well."""

    def paragraphs(self) -> list[str]:
        from kibitz.cli.setup.listing import keys_of
        from kibitz.games import get_game, usable_games
        from kibitz.train.config import Job

        own = [row["key"] for row in keys_of(Job, "") if not row["key"].startswith("env.")]
        listed = [f"Config keys: {', '.join(['env.id', *own])}."]
        for name in usable_games():
            listed.append(
                f"Keys for {name}: {', '.join(row['key'] for row in keys_of(get_game(name).options, 'env.'))}."
            )
        return [*super().paragraphs(), *listed, "`kibitz list keys` explains them and shows their defaults."]
