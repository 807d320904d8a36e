"""Show what a user gains: jobs are scaled while they train, and lose nothing.

First a job whose device is emulated, so that its workers do not share the cores of this machine: its throughput rises
with its workers. Then real digits, beside the same run without scaling: 2 workers and 1 server -> 4 workers and 3
servers -> one server drained -> 1 worker and 1 server. Writes build/demo/summary.json and build/demo/timeline.png. Exit
status 0 only if every claim of the summary holds.
"""

import json
import shutil
import sys
from pathlib import Path

from rich.console import Console

from coordinator.archive import read_archive
from elastic_ps.system.descendants import descendants_end_with_me
from examples.demo.claims import DemoResults, gather
from examples.demo.story import Story
from examples.demo.timeline import draw

FOLDER = Path("build/demo")
EPOCHS = 120
STEPS = 50
"""Steps of the digits before they are scaled."""

DEVICE = "-m", "benchmarks.scripts.emulated", "computing", "--epochs", "1000"
"""A training script whose device is emulated; it is stopped long before."""

DEVICE_STEPS = {(1, 1): 5, (2, 1): 10, (4, 2): 20}
"""Workers and servers of the emulated job, in turn, and the steps that it makes with them: 4 seconds each."""


def main() -> int:
    """Run all jobs, then check and write."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    console = Console(highlight=False, soft_wrap=True)
    device = _emulated(console)
    console.rule("real digits without scaling: 2 workers, 1 server")
    baseline = _digits("baseline", console)
    with baseline:
        baseline.until_end()
    console.rule("real digits, scaled")
    elastic = _digits("digits", console)
    with elastic:
        elastic.trains(2, 1, STEPS)
        elastic.command("scale", "digits", "--workers", "4", "--servers", "3")
        elastic.command("drain", "digits", elastic.a_server())
        elastic.command("scale", "digits", "--workers", "1", "--servers", "1")
        elastic.until_end()
    console.rule("what is claimed, and whether it holds")
    archives = read_archive(device.folder), read_archive(elastic.folder)
    claims = gather(*archives, _accuracy("digits"), _accuracy("baseline"), EPOCHS)
    claims.show(console)
    (FOLDER / "summary.json").write_text(json.dumps(claims.summary(), indent=2) + "\n")
    draw(*archives, FOLDER / "timeline.png")
    console.print(f"written: {FOLDER / 'summary.json'}, {FOLDER / 'timeline.png'}")
    return _verdict(claims, console)


def _emulated(console: Console) -> Story:
    console.rule("a job with an emulated device: 1 -> 2 -> 4 -> 1 workers")
    story = Story("device", FOLDER, ["--workers", "1", "--servers", "1", *DEVICE], console)
    (first, steps), *others = DEVICE_STEPS.items()
    with story:
        story.trains(*first, steps)
        for (workers, servers), some in [*others, (first, steps)]:
            story.command("scale", "device", "--workers", str(workers), "--servers", str(servers))
            story.trains(workers, servers, some)
        story.stop()
    return story


def _digits(name: str, console: Console) -> Story:
    script = ["examples/digits.py", "--epochs", str(EPOCHS), "--out", str(_result(name))]
    return Story(name, FOLDER, ["--workers", "2", "--servers", "1", *script], console)


def _result(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _accuracy(name: str) -> float:
    return float(json.loads(_result(name).read_text())["test_accuracy"])


def _verdict(claims: DemoResults, console: Console) -> int:
    for failure in claims.failures():
        console.print(f"[red]does not hold:[/red] {failure}")
    return 1 if claims.failures() else 0


if __name__ == "__main__":
    descendants_end_with_me()
    sys.exit(main())
