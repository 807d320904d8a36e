"""The episodes that a policy learns from, and those by which it is judged meanwhile: never the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.sim.arrivals import Pattern, generate

_VALIDATION = 1 << 30  # seeds from here on are for judging


@dataclass(frozen=True)
class Lessons:
    """Generated job sequences on clusters of several sizes, in turn.

    Attributes:
        clusters: nodes of each.
        jobs: of a sequence.
        patterns: of arrivals.
        seed: of everything.
    """

    clusters: tuple[tuple[Node, ...], ...]
    jobs: int = 60
    patterns: tuple[Pattern, ...] = (Pattern.GOOGLE,)
    seed: int = 0

    def episodes(self, first: int, count: int) -> list[Episode]:
        """Episodes `first` to `first + count` of a training that never ends."""
        return [self._episode(number, self.seed * 1_000_003 + number) for number in range(first, first + count)]

    def validation(self, count: int) -> list[Episode]:
        """Those by which it is judged, `count` for each cluster."""
        return [self._episode(number, _VALIDATION + number) for number in range(count * len(self.clusters))]

    def _episode(self, number: int, seed: int) -> Episode:
        round_, size = divmod(number, len(self.clusters))
        pattern = self.patterns[round_ % len(self.patterns)]
        return Episode(generate(pattern, self.jobs, seed % (1 << 32)), self.clusters[size])


def by_cluster(values: Sequence[float], clusters: int) -> list[float]:
    """Means of what episodes gave, by cluster."""
    return [sum(values[size::clusters]) / len(values[size::clusters]) for size in range(clusters)]
