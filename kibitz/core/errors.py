"""The exceptions a user should ever read, and how an episode is stopped."""


class BadInput(ValueError):
    """One sentence that says what was wrong and what would be right.

    The command line prints it and exits with code 2; nothing has been changed when it is raised.
    """


class NotFound(BadInput):
    """What was named is well formed and yet not here (a run, a preset, a task); elsewhere it may be."""


class Stopped(Exception):
    """The episode was ended from outside; `kind` and the reason go into its last event."""

    def __init__(self, reason: str, kind: str = "stopped") -> None:
        super().__init__(reason)
        self.kind = kind
