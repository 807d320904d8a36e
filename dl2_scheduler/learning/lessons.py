"""The episodes that a policy learns from, and those by which it is judged meanwhile: never the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.lanes import NO_COST, ScalingCost
from dl2_scheduler.sim.variation import Variation

_VALIDATION = 1 << 30  # seeds from here on are for judging
_TEST = _VALIDATION + (1 << 20)  # and from here on for judging what was selected by those


@dataclass(frozen=True)
class Lessons:
    """Lessons are generated job sequences on clusters of several sizes, in turn.

    Attributes:
        clusters: nodes of each.
        jobs: of a sequence.
        patterns: of arrivals.
        seed: of everything.
        models: that jobs train, each as often; of the catalogue.
        estimate_error: part by which owners err about epochs (DL2, figure 14).
        variation: part by which jobs' speeds deviate from their models' (DL2, figure 13).
        cost: of scaling.
        without_servers: part of the jobs that have no servers.
    """

    clusters: tuple[tuple[Node, ...], ...]
    jobs: int = 60
    patterns: tuple[Pattern, ...] = (Pattern.GOOGLE,)
    seed: int = 0
    models: tuple[str, ...] = tuple(CATALOGUE)
    estimate_error: float = 0.0
    variation: float = 0.0
    cost: ScalingCost = NO_COST
    without_servers: float = 0.0

    def episodes(self, first: int, count: int) -> list[Episode]:
        """Return episodes `first` to `first + count` of a training that never ends."""
        return [self._episode(number, self.seed * 1_000_003 + number) for number in range(first, first + count)]

    def validation(self, count: int) -> list[Episode]:
        """Return the episodes by which the training is judged, `count` for each cluster."""
        return [self._episode(number, _VALIDATION + number) for number in range(count * len(self.clusters))]

    def test(self, count: int) -> list[Episode]:
        """Return the episodes by which a policy is judged that those of `validation` have selected."""
        return [self._episode(number, _TEST + number) for number in range(count * len(self.clusters))]

    def _episode(self, number: int, seed: int) -> Episode:
        round_, size = divmod(number, len(self.clusters))
        pattern = self.patterns[round_ % len(self.patterns)]
        seed %= 1 << 32
        mix = dict.fromkeys(self.models, 1.0)
        drawn = {"estimate_error": self.estimate_error, "without_servers": self.without_servers}
        jobs = generate(pattern, self.jobs, seed, mix, **drawn)
        return Episode(jobs, self.clusters[size], Variation(self.variation, seed))


def by_cluster(values: Sequence[float], clusters: int) -> list[float]:
    """Return the means of what episodes gave, by cluster."""
    return [sum(values[size::clusters]) / len(values[size::clusters]) for size in range(clusters)]
