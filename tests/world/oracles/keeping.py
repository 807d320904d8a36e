"""A `Keeping` looks at what servers keep and do for scripts beside the values: states, statistics and commands."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from tests.world.faults.job_draw import JobDraw
from tests.world.kernel.scheduler import RUNS, Process
from tests.world.oracles.expected import NEAR, near
from tests.world.training import SQUARES


class Keeping:
    """See the module.

    Args:
        watch: is told what is wrong.
    """

    def __init__(self, watch: Any):
        self._watch = watch
        self._commands = count()

    @property
    def _draw(self) -> JobDraw:
        return self._watch.world.draw  # type: ignore[no-any-return]

    def averaged(self, process: Process, version: int, statistic: Any) -> None:
        """Check a running statistic, to which each step of each worker has added one."""
        steps = version // self._draw.stores
        if self._draw.mode == "sync" and (statistic != steps).any():
            self._watch.wrong(f"{process}: the statistic of version {version} is {statistic}")

    def collected(
        self, process: Process, version: int, tensor: int, array: Any, state: Mapping[str, Any] | None
    ) -> None:
        """Check the optimizer's state of a tensor that a script has collected: in a sync job it is of its version.

        Args:
            process: of the script.
            version: of its parameters.
            tensor: its number.
            array: its values.
            state: what was collected; None: nothing is kept of it, as it has had no update.
        """
        draw, kept = self._draw, state or {"count": 0}
        squares, course = kept.get(SQUARES, np.zeros_like(array)), self._watch.expected.course(tensor)
        if (squares < 0).any() or (course.squares[-1] + NEAR < squares.reshape(len(array), -1).T).any():
            self._watch.wrong(f"{process}: no sample can make the state {state} of tensor {tensor}")
        if draw.mode != "sync":
            return
        step = self._watch.expected.step(version)
        if kept["count"] != course.updates[step] or (draw.adaptive and not near(squares, course.squares[step])):
            self._watch.wrong(f"{process}: the state of tensor {tensor} is not of version {version}: {state}")

    @contextmanager
    def commanding(self, process: Process) -> Iterator[int]:
        """Give a number for a command, and check that servers have run it which are there before and after."""
        number, before = next(self._commands), self._servers()
        yield number
        for name, server in self._servers().items():
            times = getattr(server, "commands", ()).count(number)
            if name in before and times != 1:
                self._watch.wrong(f"{name} has run command {number} of {process} {times} times")

    def _servers(self) -> dict[Any, Process]:
        world = self._watch.world
        configuration = world.injector.state.job.configuration
        servers = configuration.servers if configuration is not None else ()
        started = [each for each in world.processes if getattr(each, "server", None) and each.state == RUNS]
        return {each.server.node: each for each in started if each.server.node in servers}
