"""This module names what frames say, and why they are refused."""

from enum import IntEnum, StrEnum


class Kind(IntEnum):
    """A `Kind` is what a frame says."""

    HELLO = 1
    ACCEPTED = 2
    REFUSED = 3
    NOTICE = 4
    INIT = 5
    PULL = 6
    PUSH = 7
    VALUE = 8
    SUBSCRIBE = 9
    SNAPSHOT = 10
    RECORD = 11
    HANDOVER = 12
    GOODBYE = 13
    FOLLOWED = 14
    JOIN = 15
    PING = 16
    PONG = 17
    SQUARES = 18
    FACTOR = 19


class Reason(StrEnum):
    """A `Reason` says why a frame is refused."""

    TOKEN = "token"
    STALE = "stale"  # from an old configuration; the refusal names the current one
    UNKNOWN = "unknown"  # the sender is not in the configuration
    MISMATCH = "mismatch"  # some workers pushed a key and others did not
    APART = "apart"  # so it is, and the receiver has just joined: the others go on without it
    MALFORMED = "malformed"
