"""This module has two ends show each other that they know a job's token, and not the token itself.

Each end draws a nonce; a proof is HMAC-SHA256 with the token as its key, over its purpose and both nonces. So what a
stranger gets to see proves nothing at another meeting, nor for the other end of this one.
"""

import hmac
import secrets
from enum import StrEnum

NONCE_BYTES = 32
PROOF_BYTES = 32


class Purpose(StrEnum):
    """A `Purpose` says what a proof is for: a proof made for one is none for another."""

    DATA_LISTENER = "elastic_ps data plane, who listens"
    DATA_CALLER = "elastic_ps data plane, who connects"
    CONTROL_LISTENER = "elastic_ps control plane, the coordinator"
    CONTROL_CALLER = "elastic_ps control plane, who calls"
    PROCESS_GROUP = "elastic_ps, where workers that all-reduce meet"


def new_nonce() -> bytes:
    """Return `NONCE_BYTES` that nobody can foretell."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(token: bytes, purpose: Purpose, *seen: bytes) -> bytes:
    """Return the proof, of `PROOF_BYTES`, that its maker knows the token.

    Args:
        token: the job's.
        purpose: what it is for.
        seen: what both ends know of their meeting: the nonces, and the address that was meant.
    """
    said = [purpose.encode(), *seen]
    return hmac.digest(token, b"".join(len(part).to_bytes(4, "little") + part for part in said), "sha256")


def proves(shown: bytes, token: bytes, purpose: Purpose, *seen: bytes) -> bool:
    """Return whether `shown` is the proof that `proof` makes, compared in the same time whatever is shown.

    Args:
        shown: what the other end has sent.
        token: the job's.
        purpose: what the proof is for.
        seen: what both ends know of their meeting.
    """
    return hmac.compare_digest(shown, proof(token, purpose, *seen))
