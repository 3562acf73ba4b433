"""Finding your way: the version, completion, `kibitz list` and `kibitz doctor`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import kibitz as package
from tests.conftest import Finished

Command = Callable[..., Finished]


def test_the_version_is_printed(kibitz: Command) -> None:
    assert kibitz("--version") == Finished(0, f"kibitz {package.__version__}\n", "")


def test_the_shell_completes_commands() -> None:
    code = "import sys; sys.argv = ['kibitz']; from kibitz.__main__ import main; main()"
    asked = {"_KIBITZ_COMPLETE": "complete_bash", "COMP_WORDS": "kibitz tr", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["train"]
