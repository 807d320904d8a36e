"""This module says how large the experiments behind figures are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.learning.actor import ActorSettings
from dl2_scheduler.learning.critic import CriticSettings
from dl2_scheduler.learning.online import OnlineSettings
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.sim.trace import parse_cluster

_NEVER = 1 << 30  # updates: figures judge by themselves

OURS = OnlineSettings(
    lanes=3,
    judge_every=_NEVER,
    actor=ActorSettings(passes=4, average=0.97),
    critic=CriticSettings(steps=300),
)
PAPER = PaperSettings(judge_every=_NEVER)


@dataclass(frozen=True)
class FigureScale:
    """Sizes are counts, never times, so that a figure has the same numbers wherever it is drawn.

    Attributes:
        clusters: to learn on, in turn; figures that show one cluster show the first.
        jobs: of a sequence.
        sequences: by which policies are judged in the end; nobody learns from them.
        validation: of these, the first, by which they are judged while they learn.
        imitated: episodes of a teacher.
        epochs: passes over what a teacher decided in them.
        ours: settings of our online learning; its lanes are the clusters that learn together.
        updates: of our online learning.
        judge_every: updates; it divides a third of them.
        paper: settings of the paper's.
        paper_updates: of the paper's.
        paper_judge_every: as `judge_every`.
        seeds: of table 2.
        variations: parts by which speeds deviate (figure 13).
        errors: parts by which owners err about epochs (figure 14).
        places: J (figure 17).
        together: numbers of clusters that learn one policy (figure 18).
    """

    clusters: tuple[str, ...] = ("24x8cpu,8gpu", "48x8cpu,8gpu", "96x8cpu,8gpu")
    jobs: int = 60
    sequences: int = 10
    validation: int = 4
    imitated: int = 6
    epochs: int = 8
    ours: OnlineSettings = field(default=OURS)
    updates: int = 18
    judge_every: int = 2
    paper: PaperSettings = field(default=PAPER)
    paper_updates: int = 1200
    paper_judge_every: int = 200
    seeds: int = 3
    variations: tuple[float, ...] = (0.0, 0.125, 0.25, 0.375, 0.5)
    errors: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)
    places: tuple[int, ...] = (5, 10, 20, 60)
    together: tuple[int, ...] = (1, 2, 3, 4)

    @property
    def nodes(self) -> tuple[tuple[Node, ...], ...]:
        """The nodes of each cluster."""
        return tuple(map(parse_cluster, self.clusters))

    def experiment(self) -> Mapping[str, object]:
        """Return what every learning run depends on beside its own recipe."""
        names = ("clusters", "jobs", "validation", "imitated", "epochs")
        return {name: getattr(self, name) for name in names}


PAPER_LIKE = FigureScale()
"""For all figures to take 40 to 50 minutes on one core, of which 24 were measured (docs/reference/figures.md)."""
