"""This demo lets a cluster learn from its history: eight jobs under DRF, beside the same jobs under a learnt policy.

First the cluster runs jobs that asked for fixed numbers of workers and servers. From what these reported a policy
learns: how fast kinds train with which counts, and what a start costs. Then this cluster goes on twice, side by side,
with the same jobs, which may be scaled while they train. Processes, coordinators, exchanges and scalings are real;
accelerators and networks are emulated, as 32 tasks on two cores would only wait for each other.

Writes build/demo-cluster.png and build/demo-cluster/. Exit status 0 only if every job has finished, and every sample of
its epochs was used exactly once.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.scripts.emulated import GLOBAL_BATCH, SAMPLES
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import TrialFailed
from dl2_scheduler.live.history import History
from elastic_ps.system.process.descendants import descendants_end_with_me
from examples.demo_cluster.jobs import TODAY, YESTERDAY
from examples.demo_cluster.picture import draw
from examples.demo_cluster.play import Played, PlayError, command, play, prove
from examples.demo_cluster.policy import learn, read

FOLDER, PICTURE = Path("build/demo-cluster"), Path("build/demo-cluster.png")
SLOTS, SLOT = "2x8", "4s"
CLUSTER = ["--slots", SLOTS, "--slot", SLOT, "--isolation", "none"]
"""Options of `dl2 serve`. Tasks wait most of the time: sixteen of them need no isolation on two cores."""


def main() -> int:
    """Play yesterday's jobs, learn from them, play today's under both policies, then tell and draw."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    console = Console(highlight=False, soft_wrap=True)
    drf = [*CLUSTER, "--policy", "drf"]
    try:
        console.rule("yesterday: jobs ask for fixed numbers of workers and servers")
        past = play({"past": drf}, YESTERDAY, FOLDER, console)
        console.rule("a policy learns from what these jobs reported")
        command(console, "fit", "--folder", str(past[0].folder), "--out", str(FOLDER / "speeds.csv"))
        with closing(History.of_folder(past[0].folder)) as history:
            seen = read(list(history.slots()), [read_document(job.document).job(0.0) for job in TODAY])
        learn(seen, virtual_nodes(SLOTS), FOLDER / "run", console.print)
        console.rule("today: policies decide, each on a cluster of its own")
        learnt = [*CLUSTER, "--policy", f"dl2:{FOLDER / 'run'}"]
        plays = play({"drf": drf, "learnt": learnt}, TODAY, FOLDER, console, past[0])
    except (PlayError, TrialFailed) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    return _told(past, plays, console)


def _told(past: Sequence[Played], plays: Sequence[Played], console: Console) -> int:
    console.rule("what came of it")
    table = Table("job", *(f"{played.policy}: seconds" for played in plays))
    for job in TODAY:
        table.add_row(job.name, *(f"{played.seconds[job.name]:.1f}" for played in plays))
    table.add_row("mean", *(f"{played.mean:.1f}" for played in plays))
    console.print(table)
    console.print(f"{plays[-1].policy} over {plays[0].policy}: {plays[-1].mean / plays[0].mean - 1:+.0%}")
    summary = [{"policy": played.policy, "mean": played.mean, "seconds": played.seconds} for played in plays]
    (FOLDER / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(plays, TODAY, PICTURE)
    for played, jobs in ((past[0], YESTERDAY), *((played, TODAY) for played in plays)):
        prove(played, jobs, SAMPLES, GLOBAL_BATCH)
    problems = [problem for played in (*past, *plays) for problem in played.problems]
    for problem in problems:
        console.print(f"[red]does not hold:[/red] {problem}")
    if not problems:
        console.print("all jobs have finished, and every sample of all was used exactly once")
    console.print(f"written: {PICTURE}, {FOLDER / 'summary.json'}")
    return 1 if problems else 0


if __name__ == "__main__":
    descendants_end_with_me()
    sys.exit(main())
