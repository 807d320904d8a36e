"""This module lets a framework's adapter say how a script of that framework does what an error asks for.

The core knows no framework: its errors ask in neutral words, in one of the phrases below. An adapter gives a hint for
each phrase when it is imported, and every error of ours in its process ends with the hints for the phrases in it, also
where the text came from a server or the coordinator, which know nothing of adapters.
"""

from collections.abc import Mapping

OPTIMIZER_ON_SERVERS = "an optimizer on the servers"
"""A phrase: the servers, not the workers, have to run the store's optimizer."""

PUSH_EACH_BATCH = "push the gradients of each batch"
"""A phrase: the loop over the sampler has to hand gradients over."""

NAME_NO_CONSISTENCY = "a store that names no consistency"
"""A phrase: a key store can be opened for whichever consistency the job has."""

PUSH_SAME_KEYS = "every worker must push the same keys in a step"
"""A phrase: some workers have handed a gradient over that others have not."""

PUSH_AS_REHEARSED = "push the same keys in the same order in every step"
"""A phrase: a step has made more exchanges than the first one, which is the rehearsal."""

PUSH_FROM_THE_START = "push it from the first batch on"
"""A phrase: a key whose value is averaged, as nobody has pushed it in the rehearsal, is pushed later."""

ITERATE_OVER_SAMPLER = "must iterate over an elastic_ps.Sampler, and train"
"""A phrase: an epoch's body takes no batch of the job."""

KEEP_SHORT_STEP = "keep the last step of an epoch, which is shorter"
"""A phrase: no step is left where an epoch has no whole one."""

FOLLOW_FROM_EPOCH = (
    "A worker that joins has not made the epochs before: let what is frozen follow from the epoch alone "
    "(`if epoch >= 3` in place of `if epoch == 3`)"
)
"""What people are told of a worker that joins and trains other parameters than the others."""

HOW_TO_JOIN = "a script joins by the loop over epochs(), by init(), or with its first key store: does it get there?"
"""What people are told of a script that runs, or has ended, outside the job."""

PHRASES = (
    OPTIMIZER_ON_SERVERS,
    PUSH_EACH_BATCH,
    NAME_NO_CONSISTENCY,
    PUSH_SAME_KEYS,
    PUSH_AS_REHEARSED,
    PUSH_FROM_THE_START,
    ITERATE_OVER_SAMPLER,
    KEEP_SHORT_STEP,
)

_hints: dict[str, str] = {}


def give_hints(hints: Mapping[str, str]) -> None:
    """Add hints to this process's errors from now on; `hints` has a sentence for each phrase."""
    _hints.update(hints)


def hinted(message: str) -> str:
    """Return a message with the hints for the phrases in it at its end, each once."""
    missing = [hint for phrase, hint in _hints.items() if phrase in message and hint not in message]
    return ". ".join([message, *missing])
