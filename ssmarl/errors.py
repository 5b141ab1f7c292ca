"""The one exception that is the user's to fix: a wrong value, name, number or file."""


class InputError(ValueError):
    """Wrong input. Its message is one line: the value, and what is allowed instead.

    The command line prints it without a traceback and exits with status 2.
    """
