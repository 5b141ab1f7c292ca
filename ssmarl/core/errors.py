"""The one exception for invalid input: a wrong value, name, number or file."""


class InputError(ValueError):
    """Invalid input. The message is one line: the value, and what is allowed instead.

    The command line prints it without a traceback and exits with status 2.
    """
