"""This module says how large the experiments behind Chic's figures are, and what is compared in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.learning.chic.settings import MENDED, PAPER, TAUGHT, ChicSettings
from dl2_scheduler.policies.pool.at_events import AtEvents, OptimusPairs
from dl2_scheduler.policies.pool.roll_out import RollOut
from dl2_scheduler.policies.rules.estimates import SpeedEstimates
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.policies.rules.speed_fit import EXPLORING, FittedSpeeds


@dataclass(frozen=True)
class ChicScale:
    """Sizes are counts, never times, so that a figure has the same numbers wherever it is drawn.

    Attributes:
        jobs: W, of a sequence.
        training: sequences from which episodes are drawn.
        validation: sequences by which a policy is chosen.
        test: sequences by which all are judged; nobody learns or chooses by them.
        rates: jobs an hour.
        judged: of these, at which the benchmark has goals.
        usual: the rate of figures that have one, and of learners that are no goal.
        seeds: of learning; the median is reported.
        iterations: of the paper's learner and the mended one; None: as their settings say.
    """

    jobs: int = 30
    training: int = 100
    validation: int = 30
    test: int = 30
    rates: tuple[float, ...] = (0.9, 1.35, 1.8, 2.25, 2.7)
    judged: tuple[float, ...] = (0.9, 1.8, 2.7)
    usual: float = 1.8
    seeds: int = 5
    iterations: int | None = None

    def learner(self, name: str) -> ChicSettings:
        """Return the settings of a learner, by its name."""
        found = LEARNERS[name]
        return found if self.iterations is None else replace(found, iterations=self.iterations)


CHIC, PAIR = "Chic", "Chic-Pair"
LEARNERS: Mapping[str, ChicSettings] = {
    CHIC: TAUGHT,
    PAIR: replace(TAUGHT, pairs=True),
    "Chic, mended": MENDED,
    "Chic-Pair, mended": replace(MENDED, pairs=True),
    "Chic, paper's": PAPER,
    "Chic-Pair, paper's": replace(PAPER, pairs=True),
}
"""The settings of each learner, by its name; the first two are those that we would use."""


@dataclass(frozen=True)
class PoolRule:
    """A `PoolRule` is a policy that learns nothing.

    Attributes:
        make: makes a new one of what it knows of speeds.
        tick: seconds between decisions; one that is asked at events does not look at it.
    """

    make: Callable[[SpeedEstimates], AllocationPolicy]
    tick: float = 600.0


OPTIMUS, EVENT, ROLL_OUT, JUMPS = "Optimus, 600 s", "Optimus, events", "roll-out", "planner, events"
RULES: Mapping[str, PoolRule] = {
    OPTIMUS: PoolRule(Optimus),
    "Optimus, 300 s": PoolRule(Optimus, 300.0),
    "Optimus, 600 s, fitted": PoolRule(lambda _: Optimus(FittedSpeeds())),
    EVENT: PoolRule(lambda speeds: AtEvents(Optimus(speeds))),
    "Optimus, events, pairs": PoolRule(lambda speeds: AtEvents(OptimusPairs(speeds))),
    JUMPS: PoolRule(lambda speeds: AtEvents(Planner(speeds))),
    "planner, events, fitted": PoolRule(lambda _: AtEvents(Planner(FittedSpeeds(optimism=EXPLORING)))),
    ROLL_OUT: PoolRule(RollOut),
    "roll-out, pairs": PoolRule(lambda speeds: RollOut(speeds, pairs=True)),
}
"""The rules beside learners. The fitted ones know nothing when a sequence begins, the others know all speeds."""

TICKS = (100.0, 200.0, 300.0, 400.0, 600.0, 900.0, 1200.0)
"""Seconds between decisions of Optimus, in figure 5b."""

COSTS = (0.0, 20.0, 60.0)
"""Seconds in which a job stands still when it starts and when its counts change, in figure 5b; the paper: 0."""
