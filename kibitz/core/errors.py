"""The one exception a user should ever read."""


class BadInput(ValueError):
    """One sentence that says what was wrong and what would be right.

    The command line prints it and exits with code 2; nothing has been changed when it is raised.
    """
