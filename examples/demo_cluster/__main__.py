"""This demo runs six real MXNet jobs on a cluster of this machine: under DRF, then under a policy learnt from that.

Writes build/demo-cluster.png and build/demo-cluster/. Exit status 0 only if every job has finished, trained.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dl2_scheduler.backends.local.nodes import virtual_nodes
from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import TrialFailed
from elastic_ps.system.descendants import descendants_end_with_me
from examples.demo_cluster.jobs import JOBS, KINDS
from examples.demo_cluster.picture import draw
from examples.demo_cluster.play import SLOT, SLOTS, Played, PlayError, command, play
from examples.demo_cluster.policy import learn, read

FOLDER, PICTURE = Path("build/demo-cluster"), Path("build/demo-cluster.png")
LEARNING_SECONDS, UPDATES = 60.0, 12


def main() -> int:
    """Play twice, learn in between, then tell and draw."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    console = Console(highlight=False, soft_wrap=True)
    try:
        console.rule("DRF schedules")
        drf = play("drf", "drf", JOBS, FOLDER / "drf", console)
        console.rule("a policy learns from what these jobs reported")
        table, trace = FOLDER / "speeds.csv", FOLDER / "jobs.jsonl"
        command(console, "fit", "--folder", str(drf.folder), "--out", str(table), "--trace", str(trace))
        seen = read(table, trace, seconds(SLOT))
        learn(seen, virtual_nodes(SLOTS), FOLDER / "run", LEARNING_SECONDS, UPDATES, console.print)
        console.rule("the learnt policy schedules")
        learnt = play("learnt", f"dl2:{FOLDER / 'run'}", JOBS, FOLDER / "dl2", console)
    except (PlayError, TrialFailed) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    return _told([drf, learnt], console)


def _told(plays: Sequence[Played], console: Console) -> int:
    console.rule("what came of it")
    table = Table("job", *(f"{played.policy}: {what}" for played in plays for what in ("seconds", "score")))
    for job in JOBS:
        cells = [cell for played in plays for cell in _cells(played, job.name, KINDS[job.kind].unit)]
        table.add_row(job.name, *cells)
    table.add_row("mean", *(cell for played in plays for cell in (f"{played.mean:.1f}", "")))
    console.print(table)
    summary = [{"policy": p.policy, "mean": p.mean, "seconds": p.seconds, "scores": p.scores} for p in plays]
    (FOLDER / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(plays, JOBS, PICTURE)
    problems = [problem for played in plays for problem in played.problems]
    for problem in problems:
        console.print(f"[red]does not hold:[/red] {problem}")
    if not problems:
        console.print(f"all {len(JOBS)} jobs have finished, trained, under {' and '.join(p.policy for p in plays)}")
    console.print(f"written: {PICTURE}, {FOLDER / 'summary.json'}")
    return 1 if problems else 0


def _cells(played: Played, job: str, unit: str) -> tuple[str, str]:
    score = f"{played.scores[job]:.3f} {unit}" if job in played.scores else "-"
    return f"{played.seconds[job]:.1f}", score


if __name__ == "__main__":
    descendants_end_with_me()
    sys.exit(main())
