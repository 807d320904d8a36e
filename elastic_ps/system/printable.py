"""This module makes others' texts harmless for terminals and logs.

A job's name, a reason, an event of Kubernetes: whoever wrote it may have put escape codes into it, which move the
cursor, hide lines, or type for the reader. Every table, line and log of ours shows such characters as their escapes.
"""

import logging
import re
import sys
import unicodedata

_KEPT = "\n\t\u200c\u200d"
"""Of the characters below these are harmless: line ends, tabs, and the joiners that scripts and emoji need."""
_ACTING = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])
"""Control, format (bidirectional overrides), halves of characters, line and paragraph separators."""


def printable(text: str, kept: str = _KEPT) -> str:
    """Return a text in which each character that acts on a terminal, or cannot be written, is its escape: `\\x1b`.

    Args:
        text: of anybody.
        kept: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(each if each in kept or not _acts(each) else _escape(each) for each in text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTING


def _escape(character: str) -> str:
    number = ord(character)
    if number < 1 << 8:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def one_line(text: str) -> str:
    """Return a text as `printable`, in one line: line ends and what is blank around them become a space."""
    return printable(re.sub(r"\s*[\r\n]\s*", " ", text.strip()), "\u200c\u200d")


class LogLines(logging.Formatter):
    """A `LogLines` writes `TIME LEVEL MESSAGE`; a message is one line, so that nobody writes lines of their own."""

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(form)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own
        """See `logging.Formatter`."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802
        """See `logging.Formatter`."""
        return printable(super().formatException(ei))  # type: ignore[arg-type]


def log_to_stderr(formatter: logging.Formatter) -> None:
    """Write this program's log to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
