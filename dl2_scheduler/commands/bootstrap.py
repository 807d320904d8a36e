"""`dl2 bootstrap`: a policy that decides as an existing scheduler does."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import (
    ChangeCost,
    SpeedTable,
    StartCost,
    known_speeds,
    new_table,
    scaling_cost,
    show,
)
from dl2_scheduler.commands.progress import Bar
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import check_jobs
from dl2_scheduler.sim.trace import parse_cluster

_CLUSTERS = "24x8cpu,8gpu 48x8cpu,8gpu 96x8cpu,8gpu"


def bootstrap(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run is written.")],
    teacher: Annotated[str, typer.Option(help="The policy to imitate, as in `dl2 simulate --policy`.")] = "drf",
    clusters: Annotated[str, typer.Option(help="Clusters to learn on, joined by spaces.")] = _CLUSTERS,
    pattern: Annotated[list[Pattern] | None, typer.Option(help="Of arrivals; may repeat [google].")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Of an episode.")] = 60,
    episodes: Annotated[int, typer.Option(min=1, help="To imitate.")] = 24,
    warm_up: Annotated[int, typer.Option(min=0, help="Episodes in which the teacher learns speeds before.")] = 24,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over what the teacher did.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
    speeds: SpeedTable = None,
    start_cost: StartCost = MEASURED.start,
    change_cost: ChangeCost = MEASURED.change,
) -> None:
    """Learn to decide as an existing scheduler does, from its decisions on a simulated cluster."""
    # torch takes seconds to import, which no other command should
    from dl2_scheduler.learning.bootstrap import BootstrapSettings
    from dl2_scheduler.learning.bootstrap import bootstrap as run
    from dl2_scheduler.learning.lessons import Lessons
    from dl2_scheduler.learning.run_folder import RunFolder

    cost = scaling_cost(start_cost, change_cost)
    nodes = tuple(parse_cluster(text) for text in clusters.split())
    if not nodes:
        raise BadInput("--clusters is empty: give at least one, as in 24x8cpu,8gpu")
    patterns = tuple(pattern or (Pattern.GOOGLE,))
    known = known_speeds(speeds)
    decides = make_policy(teacher, known)
    lessons = Lessons(nodes, jobs, patterns, seed, cost=cost)
    for episode in lessons.episodes(0, len(nodes)):  # what is wrong is told before the folder is there
        check_jobs(episode.jobs, episode.nodes, known)
    settings = BootstrapSettings(warm_up, episodes, epochs)
    folder = RunFolder(out)
    asked = {"teacher": teacher, "clusters": clusters.split(), "speeds": str(speeds or ""), "jobs": jobs, "seed": seed}
    of_lessons = {"patterns": [each.value for each in patterns], "cost": asdict(cost)}
    folder.begin({**asked, **of_lessons, **asdict(settings)})
    with Bar() as bar:
        times = run(decides, lessons, known, settings, folder, bar.tell)
    show(_table(clusters.split(), times))
    typer.echo(f"Mean completion times in slots, on sequences that were not imitated. Use it as --policy dl2:{out}")


def _table(clusters: Sequence[str], times: Mapping[str, Sequence[float]]) -> Table:
    table = new_table(cluster=False, teacher=True, policy=True, difference=True)
    for name, taught, learnt in zip(clusters, times["teacher"], times["policy"], strict=True):
        table.add_row(name, f"{taught:.2f}", f"{learnt:.2f}", f"{learnt / taught - 1:+.1%}")
    return table
