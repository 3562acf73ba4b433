"""`check_game`, which proves that a game works everywhere in kibitz. It needs no test framework.

import kibitz
kibitz.check_game(my_game)
"""

from kibitz.core.check.check import check_game

__all__ = ["check_game"]
