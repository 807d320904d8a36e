"""`dl2 learn`: online actor-critic from a bootstrapped policy on."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import new_table, show
from dl2_scheduler.commands.progress import Bar
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster


def learn(
    start: Annotated[Path | None, typer.Option("--from", metavar="RUN", help="Bootstrapped run.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the run is written.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Go on with a run of `dl2 learn`.")] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="From now on.")] = 30.0,
    updates: Annotated[int | None, typer.Option(min=1, help="In all; whichever comes first.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
) -> None:
    """Improve a policy by what its own decisions lead to, on a simulated cluster."""
    if (resume is None) == (start is None) or (resume is None) == (out is None):
        raise BadInput("give --from RUN and --out FOLDER to begin a run, or --resume FOLDER alone to go on with one")
    # torch takes seconds to import, which no other command should
    from dl2_scheduler.learning.actor_critic import Settings
    from dl2_scheduler.learning.lessons import Lessons
    from dl2_scheduler.learning.online import Online, OnlineSettings
    from dl2_scheduler.learning.run_folder import RunFolder

    before = RunFolder(start) if start is not None else None
    folder = RunFolder(out or resume or Path())
    told = (before or folder).settings()
    if before is not None:
        before.checkpoint()
        algorithm, settings = Settings(), OnlineSettings()
        told = {**told, "from": str(start), "seed": seed, "algorithm": asdict(algorithm), "online": asdict(settings)}
        folder.begin(told)
    elif "online" not in told:
        raise BadInput(f"{resume} is no run of `dl2 learn`: begin one by --from {resume} --out FOLDER")
    nodes = tuple(parse_cluster(text) for text in told["clusters"])
    speeds = interpolated(read_points(Path(told["speeds"]))) if told["speeds"] else shipped_speeds()
    lessons = Lessons(nodes, told["jobs"], tuple(map(Pattern, told["patterns"])), told["seed"])
    run = Online(folder, lessons, speeds, OnlineSettings(**told["online"]), Settings(**told["algorithm"]), before)
    first = run.judge()
    with Bar() as bar:
        run.run(60 * minutes, updates, bar.tell)
    table = new_table(cluster=False, before=True, now=True, difference=True)
    for name, was, now in zip(told["clusters"], first, run.judge(), strict=True):
        table.add_row(name, f"{was:.2f}", f"{now:.2f}", f"{now / was - 1:+.1%}")
    show(table)
    typer.echo(f"{run.updates} updates. Mean completion times in slots, on sequences it did not learn from.")
