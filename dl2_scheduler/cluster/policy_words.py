"""This module makes of what a policy says what can be written down of it."""

_LONGEST = 1000


def words(said: object) -> str:
    """Return what a policy says as text, cut where it is long: it is written down for each job and slot."""
    text = str(said).encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
