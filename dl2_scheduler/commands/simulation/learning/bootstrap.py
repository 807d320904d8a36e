"""This module is `dl2 bootstrap`: it makes a policy that decides as an existing scheduler does."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.commands.common import new_table, show
from dl2_scheduler.commands.progress import new_progress
from dl2_scheduler.commands.simulation.simulated import CostOptions, SpeedTable, known_speeds
from dl2_scheduler.policies.learnt.paper.weights import MOST_PLACES
from dl2_scheduler.policies.learnt_names import DL2
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.history import read_history
from dl2_scheduler.sim.simulator import check_jobs
from dl2_scheduler.sim.trace import parse_cluster
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

if TYPE_CHECKING:
    from dl2_scheduler.learning.bootstrap import BootstrapSettings, Tell
    from dl2_scheduler.learning.lessons import Lessons
    from dl2_scheduler.learning.paper.bootstrap import PaperNetwork
    from dl2_scheduler.learning.run_folder import RunFolder

_CLUSTERS = "24x8cpu,8gpu 48x8cpu,8gpu 96x8cpu,8gpu"
_TEACHER = "drf"


class NetworkKind(StrEnum):
    """A `NetworkKind` says which network learns."""

    SHARED = "shared"
    PAPER = "paper"


@grouped
def bootstrap(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run is written.")],
    teacher: Annotated[str | None, typer.Option(help="The policy to imitate; a wrong one lists them [drf].")] = None,
    history: Annotated[Path | None, typer.Option(help="Recorded decisions to imitate instead.")] = None,
    network: Annotated[NetworkKind, typer.Option(help="Ours, which jobs share, or the paper's.")] = NetworkKind.SHARED,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Imitate nobody: the paper's network, with random weights.")
    ] = False,
    places: Annotated[int, typer.Option(min=1, max=MOST_PLACES, help="Jobs that the paper's network sees.")] = 20,
    clusters: Annotated[str, typer.Option(help="Clusters to learn on, joined by spaces.")] = _CLUSTERS,
    pattern: Annotated[list[Pattern] | None, typer.Option(help="Of arrivals; may repeat [google].")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=10_000, help="Of an episode.")] = 60,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="To imitate.")] = 24,
    warm_up: Annotated[
        int, typer.Option(min=0, max=100_000, help="Episodes before, for the teacher to learn speeds.")
    ] = 24,
    epochs: Annotated[int, typer.Option(min=1, max=100_000, help="Passes over what the teacher did.")] = 12,
    without_servers: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the jobs that have no servers: their workers all-reduce.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
    speeds: SpeedTable = None,
    *,
    costs: CostOptions,
) -> None:
    """Learn to decide as an existing scheduler does, from its decisions on a simulated cluster or recorded ones."""
    # torch takes seconds to import, which no other command should
    from dl2_scheduler.learning.bootstrap import BootstrapSettings
    from dl2_scheduler.learning.lessons import Lessons
    from dl2_scheduler.learning.paper.bootstrap import PaperNetwork
    from dl2_scheduler.learning.run_folder import RunFolder

    if teacher and history:
        raise BadInput("--teacher and --history: give one of them")
    if untrained and (teacher or history or network is not NetworkKind.PAPER):
        raise BadInput("--untrained is for --network paper, without --teacher and --history")
    if without_servers and network is NetworkKind.PAPER:
        raise BadInput("--without-servers: the paper's network gives every job both roles: leave --network out")
    cost, known = costs.cost, known_speeds(speeds)
    patterns = tuple(pattern or (Pattern.GOOGLE,))
    lessons = Lessons(_nodes(clusters), jobs, patterns, seed, cost=cost, without_servers=without_servers)
    _check_lessons(lessons, known)
    make = PaperNetwork(places) if network is NetworkKind.PAPER else None
    told = {"network": network.value, "clusters": clusters.split(), "speeds": str(speeds or ""), "jobs": jobs}
    of_lessons = {"patterns": [each.value for each in patterns], "cost": asdict(cost), "seed": seed}
    of_lessons["without_servers"] = without_servers
    run = _Run(lessons, known, BootstrapSettings(warm_up, episodes, epochs), make, RunFolder(out), told | of_lessons)
    with new_progress() as progress:
        if untrained:
            times = run.of_nobody()
        else:
            times = run.of_history(history, progress.tell) if history else run.of_teacher(teacher, progress.tell)
    show(_table(clusters.split(), times))
    say(f"Mean completion times in slots, on sequences that were not imitated. Use it as --policy dl2:{out}")


def _check_lessons(lessons: "Lessons", speeds: Speeds) -> None:
    """Refuse jobs that cannot run, before the run's folder is there. Raises BadInput."""
    for episode in lessons.episodes(0, len(lessons.clusters)):
        check_jobs(episode.jobs, episode.nodes, speeds)


def _nodes(clusters: str) -> tuple[tuple[Node, ...], ...]:
    nodes = tuple(parse_cluster(text) for text in clusters.split())
    if not nodes:
        raise BadInput("--clusters is empty: give at least one, as in 24x8cpu,8gpu")
    return nodes


@dataclass(frozen=True)
class _Run:
    """A `_Run` is what was asked for.

    Attributes:
        lessons: the episodes.
        speeds: the speeds of the simulated jobs.
        settings: the settings of the imitation.
        network: the paper's; None: ours.
        folder: to be begun.
        told: settings of the run, without its teacher's.
    """

    lessons: "Lessons"
    speeds: Speeds
    settings: "BootstrapSettings"
    network: "PaperNetwork | None"
    folder: "RunFolder"
    told: Mapping[str, object]

    def of_teacher(self, named: str | None, tell: "Tell") -> Mapping[str, Sequence[float]]:
        from dl2_scheduler.learning.bootstrap import bootstrap as bootstrap_shared
        from dl2_scheduler.learning.paper.bootstrap import bootstrap_paper

        teacher = named or _TEACHER
        common = make_policy(teacher, self.speeds), self.lessons, self.speeds, self.settings
        with self._begun(teacher=teacher):
            if self.network is None:
                return bootstrap_shared(*common, self.folder, tell)
            return bootstrap_paper(*common, self.network, self.folder, tell)

    def of_nobody(self) -> Mapping[str, Sequence[float]]:
        from dl2_scheduler.learning.paper.bootstrap import untrained

        assert self.network is not None, "checked where the options are"
        with self._begun(teacher=""):
            untrained(self.network, self.speeds.models, self.lessons.seed, self.folder)
            return self._judged()

    def of_history(self, path: Path, tell: "Tell") -> Mapping[str, Sequence[float]]:
        from dl2_scheduler.learning.recorded import learn_history, models_of

        history = read_history(path)
        models = sorted({*self.speeds.models, *models_of(history)})
        with self._begun(history=str(path)):
            learn_history(history, models, self.network, self.settings.epochs, self.lessons.seed, self.folder, tell)
            return self._judged()

    def _judged(self) -> Mapping[str, Sequence[float]]:
        from dl2_scheduler.learning.recorded import judged

        policy = make_policy(f"{DL2}{self.folder.path}", self.speeds)
        return {"policy": judged(policy, self.lessons, self.speeds, self.settings.validation)}

    @contextmanager
    def _begun(self, **source: str) -> Iterator[None]:
        of_network = asdict(self.network) if self.network else {}
        with self.folder.held():
            self.folder.begin({**source, **self.told, **asdict(self.settings), **of_network})
            yield


def _table(clusters: Sequence[str], times: Mapping[str, Sequence[float]]) -> Table:
    compared = "teacher" in times
    table = new_table(cluster=False, **dict.fromkeys([*times, *(["difference"] if compared else [])], True))
    for name, *values in zip(clusters, *times.values(), strict=True):
        difference = [f"{values[1] / values[0] - 1:+.1%}"] if compared else []
        table.add_row(name, *(f"{value:.2f}" for value in values), *difference)
    return table
