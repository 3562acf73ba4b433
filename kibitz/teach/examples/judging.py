"""`kibitz teach data --style`: transcripts of episodes with the right yes or no, for teaching a judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kibitz.advice.judge import ANSWER, NO, YES, judge_messages
from kibitz.core.game import Game
from kibitz.evaluate.judges.episodes import draw, finished
from kibitz.llm.answers.prompt import Prompt

EPISODES_PER_DRAW = 512


def judgements(
    game: Game, options: Any, styles: Sequence[str], opponent: str, seed: int, prompt: Prompt
) -> Iterator[list[dict[str, Any]]]:
    """Endless batches of rows; for each style as many with yes as with no, so that a model cannot just guess."""
    given: Counter[tuple[str, bool]] = Counter()
    while True:
        episodes = draw(game, options, EPISODES_PER_DRAW, (), opponent, seed)
        rows = []
        for number in range(len(episodes)):
            for style in styles:
                shown = bool(episodes.shown[style][number])
                if given[style, shown] > given[style, not shown]:
                    continue
                given[style, shown] += 1
                question = judge_messages(game, prompt, style, finished(game, episodes, number), taught=True)
                answer = {"role": "assistant", "content": ANSWER.write({"answer": YES if shown else NO})}
                rows.append({"messages": [*question, answer]})
        yield rows
        seed += 1_000_003  # `draw` counts episodes from 0
