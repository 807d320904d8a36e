"""This module checks texts of a script before they are sent: one that others refuse should end no process."""

from elastic_ps.core.errors import ConfigurationError

LONGEST_TEXT = 16_000
"""The most characters of a text that is a name: a few less than the coordinator takes."""

_MOST_SHOWN = 100


def check_text(what: str, text: str, most: int = LONGEST_TEXT) -> None:
    """Check that a text can be sent to other processes.

    Args:
        what: the text is, for the error.
        text: that a script gave.
        most: characters that it may have.

    Raises:
        ConfigurationError: it is too long, or has a zero or half of a surrogate pair in it.
    """
    if len(text) > most:
        why = f"{len(text)} characters, of which at most {most} are taken"
    elif "\0" in text:
        why = "a text with a zero in it"
    elif any("\ud800" <= letter <= "\udfff" for letter in text):
        why = "a text that is not Unicode, as it has half of a surrogate pair in it"
    else:
        return
    raise ConfigurationError(f"{what} {text[:_MOST_SHOWN]!r}: {why}")
