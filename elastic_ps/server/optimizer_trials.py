"""A script's optimizer is tried beside the session: importing a user's module may take its time, or never end."""

import threading
from collections.abc import Callable, Mapping

from elastic_ps.core.module_file import ModuleFile
from elastic_ps.optimizers.trial import trial
from elastic_ps.server.interfaces import Control
from protos import elastic_pb2 as pb

TRIAL_SECONDS = 30.0
"""How long an optimizer may take to be loaded and to make one update of nothing."""


class OptimizerTrials:
    """`OptimizerTrials` tries each optimizer in a thread of its own, for a bounded time.

    Args:
        control: takes the answers.
        modules: the modules that users' optimizers may come from.
        spawn: starts a named thread.
        seconds: the time that each may take.
    """

    def __init__(
        self,
        control: Control,
        modules: Mapping[str, ModuleFile],
        spawn: Callable[[str, Callable[[], None]], object],
        seconds: float = TRIAL_SECONDS,
    ):
        self._control = control
        self._modules = modules
        self._spawn = spawn
        self._seconds = seconds

    def begin(self, asked: "pb.Trial") -> None:
        """Answer TRIED once: when it is known, or when it takes too long."""
        first = threading.Lock()

        def answer(why: str) -> None:
            if first.acquire(blocking=False):
                patience.cancel()
                self._control.acknowledge(pb.TRIED, optimizer=asked.optimizer, detail=why)

        patience = threading.Timer(self._seconds, answer, (f"its trial has not ended within {self._seconds:g} s",))
        patience.name, patience.daemon = "trial-patience", True
        patience.start()
        self._spawn("trial", lambda: answer(trial(asked.optimizer, asked.dtypes, self._modules)))
