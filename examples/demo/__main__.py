"""Show what a user gains: jobs are scaled while they train, and lose nothing.

First a job whose device is emulated, so that its workers do not share the cores of this machine: its throughput rises
with its workers. Then real digits, beside the same run without scaling: 2 workers and 1 server -> 4 workers and 3
servers -> one server drained -> 1 worker and 1 server. Writes build/demo/summary.json and build/demo/timeline.png. Exit
status 0 only if every claim of the summary holds.

With --torch the digits' script is PyTorch's, its weights are exported while it trains, and the files are in
build/demo-torch. Then the same script trains without servers: 2 workers -> 4 -> one drained -> 1.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from coordinator.archive import read_archive
from elastic_ps.system.process.descendants import descendants_end_with_me
from examples.demo.claims import DemoResults, ScaledJob, gather
from examples.demo.story import Story
from examples.demo.timeline import draw
from protos import elastic_pb2 as pb

STEPS = 50
"""Steps of the digits before they are scaled."""


@dataclass(frozen=True)
class Digits:
    """`Digits` says which script trains the digits.

    Attributes:
        script: its path.
        folder: for state and results.
        epochs: that it trains: enough for three plans in the meantime.
    """

    script: str
    folder: Path
    epochs: int

    def result(self, name: str) -> Path:
        """Return the file in which a job writes its accuracy."""
        return self.folder / f"{name}.json"

    def accuracy(self, name: str) -> float:
        """Return what a job has written."""
        return float(json.loads(self.result(name).read_text())["test_accuracy"])

    def story(self, name: str, console: Console, nodes: Sequence[str] = ("--workers", "2", "--servers", "1")) -> Story:
        """Return a job that trains the digits.

        Args:
            name: of the job.
            console: where it is told.
            nodes: options of elasticrun that say which nodes it begins with.
        """
        script = [self.script, "--epochs", str(self.epochs), "--out", str(self.result(name))]
        return Story(name, self.folder, [*nodes, *script], console)

    def scaled(self, story: Story) -> ScaledJob:
        """Return what is claimed of a job that was scaled."""
        return ScaledJob.of(story.name, read_archive(story.folder), self.accuracy(story.name), self.epochs)


MXNET = Digits("examples/digits.py", Path("build/demo"), 120)
TORCH = Digits("examples/torch/digits.py", Path("build/demo-torch"), 200)

DEVICE = "-m", "benchmarks.scripts.emulated", "computing", "--epochs", "1000"
"""A training script whose device is emulated; it is stopped long before."""

DEVICE_STEPS = {(1, 1): 5, (2, 1): 10, (4, 2): 20}
"""Workers and servers of the emulated job, in turn, and the steps that it makes with them: 4 seconds each."""


def main(digits: Digits) -> int:
    """Run all jobs, then check and write."""
    folder = digits.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console = Console(highlight=False, soft_wrap=True)
    device = _emulated(folder, console)
    console.rule("real digits without scaling: 2 workers, 1 server")
    baseline = digits.story("baseline", console)
    with baseline:
        baseline.until_end()
    scaled = [_with_servers(digits, console), *([_without_servers(digits, console)] if digits is TORCH else [])]
    console.rule("what is claimed, and whether it holds")
    archive = read_archive(device.folder)
    claims = gather(archive, [digits.scaled(story) for story in scaled], digits.accuracy("baseline"))
    claims.show(console)
    (folder / "summary.json").write_text(json.dumps(claims.summary(), indent=2) + "\n")
    draw(archive, read_archive(scaled[0].folder), folder / "timeline.png")
    console.print(f"written: {folder / 'summary.json'}, {folder / 'timeline.png'}")
    return _verdict(claims, console)


def _emulated(folder: Path, console: Console) -> Story:
    console.rule("a job with an emulated device: 1 -> 2 -> 4 -> 1 workers")
    story = Story("device", folder, ["--workers", "1", "--servers", "1", *DEVICE], console)
    (first, steps), *others = DEVICE_STEPS.items()
    with story:
        story.trains(*first, steps)
        for (workers, servers), some in [*others, (first, steps)]:
            story.command("scale", "device", "--workers", str(workers), "--servers", str(servers))
            story.trains(workers, servers, some)
        story.stop()
    return story


def _with_servers(digits: Digits, console: Console) -> Story:
    console.rule("real digits, scaled")
    story = digits.story("digits", console)
    with story:
        story.trains(2, 1, STEPS)
        story.command("scale", "digits", "--workers", "4", "--servers", "3")
        story.command("drain", "digits", story.youngest(pb.SERVER))
        story.command("scale", "digits", "--workers", "1", "--servers", "1")
        if digits is TORCH:
            story.command("export", "digits", "-o", str(digits.folder / "model.safetensors"))
        story.until_end()
    return story


def _without_servers(digits: Digits, console: Console) -> Story:
    console.rule("the same script without servers, scaled")
    story = digits.story("all-reduce", console, ("--mode", "all-reduce", "--workers", "2"))
    with story:
        story.trains(2, 0, STEPS)
        story.command("scale", story.name, "--workers", "4")
        story.command("drain", story.name, story.youngest(pb.WORKER))
        story.command("scale", story.name, "--workers", "1")
        story.until_end()
    return story


def _verdict(claims: DemoResults, console: Console) -> int:
    for failure in claims.failures():
        console.print(f"[red]does not hold:[/red] {failure}")
    return 1 if claims.failures() else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true", help="the digits by PyTorch, instead of MXNet")
    chosen = TORCH if parser.parse_args().torch else MXNET
    descendants_end_with_me()
    sys.exit(main(chosen))
