"""This module says how a launcher's job has ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from elastic_ps.core.configuration import Role
from protos import elastic_pb2 as pb


@dataclass(frozen=True, slots=True)
class LauncherOutcome:
    """A `LauncherOutcome` says how a job has ended.

    Attributes:
        status: exit status of the launcher: 0 finished, 1 failed, `EXIT_LATER`, 128 + n ended by signal n.
        word: finished | failed | stopped.
        reason: for people; "" where there is nothing to add.
    """

    status: int
    word: str
    reason: str = ""

    def summary(self, job: str, seconds: float, status: pb.StatusReply | None, counts: Mapping[Role, int]) -> str:
        """Return one line about the whole job.

        Args:
            job: its name.
            seconds: that it took.
            status: the coordinator's last answer; None where there is none.
            counts: nodes that it had at the end; empty where nobody knows.
        """
        reason = f" ({self.reason})" if self.reason and self.reason != self.word else ""
        line = f"job {job} {self.word}{reason} after {seconds:.1f} s"
        if status is not None:
            steps = status.version // max(status.data.exchanges, 1)
            nothing = " (its script has trained nothing)" if not steps and self.word == "finished" else ""
            line += f", {_many(steps, 'step')}{nothing}"
        if counts:
            servers = f" and {_many(counts[Role.SERVER], 'server')}" if counts[Role.SERVER] else ""
            line += f"; at the end {_many(counts[Role.WORKER], 'worker')}{servers}"
        return line


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
