"""This module says what the exit status of a process means."""

_SIGNALS = 65  # numbers below are signals of Linux; `sys.exit(-1)` and MXNet, at a fault, end with 255


def signal_of(status: int) -> int:
    """Return the signal that a process was ended by; 0: it ended by itself.

    Args:
        status: of the process. The signal's number is negated, as Python has it, or has 128 added, as in a shell.
    """
    number = -status if status < 0 else status - 128
    return number if 0 < number < _SIGNALS else 0
