"""The one exception a user should ever read, and a special case of it."""


class BadInput(ValueError):
    """One sentence that says what was wrong and what would be right.

    The command line prints it and exits with code 2; nothing has been changed when it is raised.
    """


class NotFound(BadInput):
    """What was named is well formed and yet not here (a run, a preset, a task); elsewhere it may be."""
