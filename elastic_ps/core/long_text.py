"""A long text is packed for its way: what a server says of a hundred thousand blocks would be beyond any message."""

import base64
import zlib

LONG = 15 << 20
"""Characters above which a text is packed: a coordinator takes 16 MiB, and one of an earlier release reads no other."""

_MARK = "zlib:"  # no JSON begins so
_MOST = 1 << 29


def packed(text: str) -> str:
    """Return a text as it is sent."""
    if len(text) <= LONG:
        return text
    return _MARK + base64.b85encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(text: str) -> str:
    """Return a text that `packed` has made ready, or one that was sent as it is.

    Raises:
        ValueError: it is damaged, or longer than any that is meant.
    """
    if not text.startswith(_MARK):
        return text
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(base64.b85decode(text[len(_MARK) :]), _MOST)
    except zlib.error as error:
        raise ValueError(f"a text that cannot be unpacked: {error}") from error
    if not reader.eof:
        raise ValueError(f"a packed text that is cut off, or of more than {_MOST} bytes")
    return found.decode()
