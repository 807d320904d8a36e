"""How a node that is told to go (SIGTERM) leaves its job."""

from typing import Protocol

from elastic_ps.core.errors import ElasticError, JobEnded

EXIT_TERMINATED = 143
"""Exit status of a node that had to go and could not be drained: 128 + SIGTERM."""


class Leaving(Protocol):
    """The part of `Session` that this needs."""

    def leave(self) -> None:
        """Ask to be drained."""

    def checkpoint(self) -> str:
        """Have the whole job saved; returns where."""


def leave_or_save(session: Leaving) -> str:
    """Ask to be drained. Where that cannot be (the last of its role, no coordinator), have the job saved first.

    The node trains on meanwhile: a checkpoint has a clock, which is reached by all together.

    Returns:
        Why the node has to end now, with `EXIT_TERMINATED`; "": a plan without it is coming, or the job's end.
    """
    try:
        session.leave()
    except JobEnded:
        return ""
    except ElasticError as error:
        why = f"SIGTERM, and this node cannot be drained ({error})"
    else:
        return ""
    try:
        return f"{why}; the job was saved to {session.checkpoint()}"
    except ElasticError as error:
        return f"{why}, nor the job be saved ({error})"
