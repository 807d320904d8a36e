"""Train digits elastically, with an operator's commands in the middle, beside the same run without any.

2 workers and 1 server -> 4 workers and 3 servers -> one server drained -> 1 worker and 1 server. Writes
build/demo/summary.json and build/demo/timeline.png. Exit status 0 only if every claim of the summary holds.
"""

import json
import shutil
import sys
from pathlib import Path

from rich.console import Console

from coordinator.archive import read_archive
from elastic_ps.system.descendants import descendants_end_with_me
from examples.demo.claims import DemoResults, gather
from examples.demo.story import GLOBAL_BATCH, SAMPLES, Story
from examples.demo.timeline import draw

FOLDER = Path("build/demo")
EPOCHS = 150


def main() -> int:
    """Run both jobs, then check and write."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    console = Console(highlight=False)
    console.rule("the job without scaling: 2 workers, 1 server")
    baseline = Story("baseline", FOLDER, EPOCHS, console)
    with baseline:
        baseline.until_end()
    console.rule("the elastic job")
    elastic = Story("digits", FOLDER, EPOCHS, console)
    with elastic:
        elastic.trains(workers=2, servers=1)
        elastic.command("scale", "digits", "--workers", "4", "--servers", "3")
        elastic.command("drain", "digits", elastic.a_server())
        elastic.command("scale", "digits", "--workers", "1", "--servers", "1")
        elastic.until_end()
    console.rule("what is claimed, and whether it holds")
    archive = read_archive(elastic.folder)
    claims = gather(archive, elastic.accuracy(), baseline.accuracy(), SAMPLES, GLOBAL_BATCH, EPOCHS)
    claims.show(console)
    (FOLDER / "summary.json").write_text(json.dumps(claims.summary(), indent=2) + "\n")
    draw(archive.steps, archive.plans, FOLDER / "timeline.png")
    console.print(f"written: {FOLDER / 'summary.json'}, {FOLDER / 'timeline.png'}")
    return _verdict(claims, console)


def _verdict(claims: DemoResults, console: Console) -> int:
    for failure in claims.failures():
        console.print(f"[red]does not hold:[/red] {failure}")
    return 1 if claims.failures() else 0


if __name__ == "__main__":
    descendants_end_with_me()
    sys.exit(main())
