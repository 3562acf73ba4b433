"""The exceptions whose messages users read, and the one that stops an episode."""


class BadInput(ValueError):
    """One sentence that says what was wrong and what would be right.

    The command line prints it and exits with code 2; nothing has been changed when it is raised.
    """


class NotFound(BadInput):
    """The name is well formed, but there is no such run, preset or task on this machine."""


class Stopped(Exception):
    """The episode was ended from outside; `kind` and the reason go into its last event."""

    def __init__(self, reason: str, kind: str = "stopped") -> None:
        super().__init__(reason)
        self.kind = kind
