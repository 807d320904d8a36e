"""A `ScriptJob` is a worker's part in its job, whatever kind of job it is, as the script's loop sees it."""

import atexit
import os
from collections.abc import Callable, Mapping
from typing import Any

from elastic_ps.core.data_order import DataSpec, Place
from elastic_ps.core.errors import ConfigurationError, JobEnded
from elastic_ps.core.script_text import check_text
from elastic_ps.node.leaving import EXIT_TERMINATED, leave_or_save, same_signal_seconds
from elastic_ps.worker.script.data_position import DataPosition, StepPart, position_of
from elastic_ps.worker.script.process_ending import ScriptEnding, drain_on_sigterm, exits
from elastic_ps.worker.script.staging import Staging
from elastic_ps.worker.wire.member_state import MemberState

_LONGEST_NAME = 200
"""The most characters of a metric's name: it heads a column of `elasticctl status`."""


class ScriptJob:
    """A `ScriptJob` takes the script through its steps. All methods are called from the script's thread.

    Args:
        node: this worker.

    Attributes:
        staging: knows whether the script rehearses.
        spec: of the elastic sampler; None while the script draws its own batches.
        data_position: the worker's, in an elastic job.
        epochs: of the whole job; None: the script has not said.
        loop_epoch: that the script's loop over epochs is in; None: it has none.
        used_epoch: the last one that a loop over the sampler has come to the end of; None: none has.
        open_loop: over the sampler, which began last of those that the script has not let go; None: there is none.
        rehearsed: the rehearsal is over.
        draws: how often the script has iterated over its sampler, or taken the next batch.
        seeders: called with a seed of each step's own.
    """

    def __init__(self, node: MemberState):
        self.node = node
        self.staging = Staging()
        self.spec: DataSpec | None = None
        self.data_position: DataPosition | None = None
        self.epochs: int | None = None
        self.loop_epoch: int | None = None
        self.used_epoch: int | None = None
        self.open_loop: object | None = None
        self.rehearsed = False
        self.draws = 0
        self.seeders: list[Callable[[int], None]] = []

    def start(self) -> None:
        """Join the job; returns when this worker's peers are ready."""
        raise NotImplementedError

    def leave(self, finished: bool) -> None:
        """Tell the job that this worker has finished (or goes away), once."""
        raise NotImplementedError

    def leave_at_exit(self) -> None:
        """Leave the job when the script ends, and let SIGTERM drain this worker."""
        ending, worker = ScriptEnding(), os.getpid()

        def leave() -> None:
            if os.getpid() == worker:  # a fork of it that ends has no part in the job
                self.leave(finished=not ending.failed)

        atexit.register(leave)
        drain_on_sigterm(
            lambda: leave_or_save(self.node.session),
            lambda why: self.node.end(JobEnded(why, EXIT_TERMINATED)),
            same_signal_seconds(),
        )

    @property
    def consistency(self) -> str:
        """ "sync", "async" or "ssp"."""
        return "sync"

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step."""
        return self.consistency == "sync"

    @property
    def epoch(self) -> int:
        """The job's present epoch, as far as this worker knows."""
        if self.data_position is None and self.node.data is not None and self.node.data.elastic:
            self.data_position = position_of(self.node, self.node.data)
        with exits():
            return self.data_position.epoch if self.data_position else 0

    @property
    def place(self) -> Place | None:
        """Where the step under way stands in the data; None: there is none, or the script draws its own batches."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """This worker's rank; a shadow that rehearses has the next one: no other is taken for the first."""
        configuration = self.node.configuration
        return configuration.ranks.get(self.node.session.node, len(configuration.workers))

    @property
    def num_workers(self) -> int:
        """Among how many workers the data is divided: those in force; static data is divided once, at the start."""
        elastic = self.spec is not None or (self.node.data is not None and self.node.data.elastic)
        return len(self.node.configuration.workers) if elastic else self.node.founders

    def report(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take over metrics of a step; a name that cannot be sent is refused here, where the script sees it."""
        for name in metrics:
            check_text("report: metric", name, _LONGEST_NAME)
        values = {name: _number(name, value) for name, value in metrics.items()}
        if not self.staging.rehearsing:
            self.node.progress.metrics(step, values)

    # ---- steps of an elastic job -----------------------------------------------------------------------------------

    def rehearse(self, spec: DataSpec) -> None:
        """Make the script's next step a rehearsal: what it computes is learnt, and trains nothing."""
        raise NotImplementedError

    def perform(self) -> None:
        """End the rehearsal: declare what it used, and wait to be a member that has the job's values."""
        raise NotImplementedError

    def begin_step(self, epoch: int) -> StepPart | None:
        """Return this worker's part of the next step, fixed from now to `end_step`; None: `epoch` is over."""
        raise NotImplementedError

    def end_step(self, part: StepPart) -> bool:
        """End the step of `part`; return False where it must be yielded again, or is not open."""
        raise NotImplementedError

    def leave_step(self) -> None:
        """Leave the step, as the script has left its loop, perhaps by a break: what it has pushed counts."""
        raise NotImplementedError

    def skip_step(self) -> None:
        """Take part in a step in which this worker has no samples."""
        raise NotImplementedError


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # PyTorch raises the last
        raise ConfigurationError(f"report: {name} = {value!r:.80} is no number; give one, as in loss=0.31") from error
