"""`check_game`: the promise that a game which passes works everywhere. It needs no test framework.

import kibitz
kibitz.check_game(my_game)
"""

from kibitz.core.check.check import check_game

__all__ = ["check_game"]
