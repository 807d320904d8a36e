"""This module says what the demo claims, and whether it holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.console import Console

from coordinator.archive import Archive
from coordinator.ctl.exactly_once_audit import Audit, audit
from protos import elastic_pb2 as pb

SAMPLES, GLOBAL_BATCH = 1437, 64  # of examples/digits.py
ACCURACY = 0.97
PLANS = 3


@dataclass(frozen=True)
class ScaledJob:
    """A `ScaledJob` is what the demo claims of digits that were scaled while they trained.

    Attributes:
        name: of the job.
        accuracy: on the test images.
        proof: of the ledger.
        plans: the operator's, in order.
    """

    name: str
    accuracy: float
    proof: Audit
    plans: tuple[pb.Plan, ...]

    @staticmethod
    def of(name: str, archive: Archive, accuracy: float, epochs: int) -> "ScaledJob":
        """Collect the results of a job.

        Args:
            name: of the job.
            archive: its folder's.
            accuracy: on the test images.
            epochs: that it trained.
        """
        return ScaledJob(name, accuracy, audit(archive.ledger, SAMPLES, GLOBAL_BATCH, epochs), _asked(archive))

    def summary(self) -> dict[str, Any]:
        """Return what build/demo/summary.json has of it."""
        return {
            "test_accuracy": self.accuracy,
            "samples_exactly_once": self.proof.exactly_once,
            "plans": [
                {
                    "cause": plan.cause,
                    "joined": list(plan.joined),
                    "left": list(plan.left),
                    "steps_ms": list(plan.steps_ms),
                    "bytes_moved": plan.bytes_moved,
                    "suspension_ms": dict(plan.suspension_ms),
                }
                for plan in self.plans
            ],
        }

    def failures(self) -> Iterator[str]:
        """Yield what does not hold."""
        if self.accuracy < ACCURACY:
            yield f"test accuracy is {self.accuracy:.4f}, under {ACCURACY}"
        yield from (f"exactly once: {problem}" for problem in self.proof.problems)
        if not self.proof.exactly_once and not self.proof.problems:
            yield "exactly once: the ledger is empty"
        yield from _problems(self.plans)

    def show(self, console: Console) -> None:
        """Print it all."""
        console.print(f"{self.name}:")
        for plan in self.plans:
            changed = " ".join([*(f"+{node}" for node in plan.joined), *(f"-{node}" for node in plan.left)])
            times = " + ".join(f"{ms:.0f}" for ms in plan.steps_ms)
            suspended = ", ".join(f"{worker} {ms:.2f}" for worker, ms in sorted(plan.suspension_ms.items()))
            console.print(f"  plan {plan.id} ({plan.cause}): {changed}")
            console.print(f"    registration + assignment + migration + worker update: {times} ms")
            console.print(f"    moved {plan.bytes_moved:,} bytes; suspension {suspended} ms")
        console.print(
            f"  every sample of every epoch exactly once: {'proved' if self.proof.exactly_once else 'NOT PROVED'} from "
            f"{self.proof.updates} applied updates, {self.proof.epochs} epochs of {self.proof.samples[0]} samples"
        )


@dataclass(frozen=True)
class DemoResults:
    """These results are what the demo claims.

    Attributes:
        baseline: accuracy of the digits that were not scaled.
        scaled: the digits that were.
        device_plans: those of the job with an emulated device.
        device_rates: its samples a second between plans, with the number of its workers then.
    """

    baseline: float
    scaled: tuple[ScaledJob, ...]
    device_plans: tuple[pb.Plan, ...]
    device_rates: tuple[tuple[int, float], ...]

    def summary(self) -> dict[str, Any]:
        """Return what build/demo/summary.json has."""
        return {
            "baseline_accuracy": self.baseline,
            "emulated_samples_per_second": [
                {"workers": workers, "samples_per_second": rate} for workers, rate in self.device_rates
            ],
            "scaled": {job.name: job.summary() for job in self.scaled},
        }

    def failures(self) -> list[str]:
        """Return what does not hold."""
        failures = [f"emulated device: {problem}" for problem in _problems(self.device_plans)]
        if self.baseline < ACCURACY:
            failures.append(f"test accuracy without scaling is {self.baseline:.4f}, under {ACCURACY}")
        return failures + [f"{job.name}: {problem}" for job in self.scaled for problem in job.failures()]

    def show(self, console: Console) -> None:
        """Print it all."""
        rates = ", ".join(f"{rate:.0f} with {workers}" for workers, rate in self.device_rates)
        console.print(f"emulated device, samples a second by workers: {rates}")
        for job in self.scaled:
            job.show(console)
        accuracies = ", ".join(f"{job.name} {job.accuracy:.4f}" for job in self.scaled)
        console.print(f"test accuracy: {accuracies}, without scaling {self.baseline:.4f}, at least {ACCURACY}")


def gather(device: Archive, scaled: Sequence[ScaledJob], baseline: float) -> DemoResults:
    """Collect the results of all jobs.

    Args:
        device: of the job with an emulated device.
        scaled: the digits that were scaled.
        baseline: accuracy of the digits that were not.
    """
    return DemoResults(baseline, tuple(scaled), _asked(device), tuple(_rates(device)))


def _asked(archive: Archive) -> tuple[pb.Plan, ...]:
    return tuple(plan for plan in archive.plans if plan.cause != "start")


def _problems(plans: Sequence[pb.Plan]) -> Iterator[str]:
    committed = [plan for plan in plans if plan.phase == "COMMITTED"]
    if len(committed) != PLANS:
        yield f"{len(committed)} of {PLANS} plans were committed"
    for plan in committed:
        if len(plan.steps_ms) != 4 or not plan.suspension_ms:
            yield f"plan {plan.id} lacks the times of its steps or of its workers' suspension"


def _rates(archive: Archive) -> Iterator[tuple[int, float]]:
    """Yield the workers between two plans, and the samples a second of the steps that lie wholly there."""
    edges = [(plan.started, plan.ended) for plan in _asked(archive) if plan.phase == "COMMITTED"]
    ends = sorted(row.step.end for row in archive.steps)
    for low, high in pairwise([ends[0], *(edge for both in edges for edge in both), ends[-1]]):
        if (low, high) in edges:
            continue
        rows = [row for row in archive.steps if low < row.step.end - row.step.seconds and row.step.end <= high]
        if rows:
            seconds = max(row.step.end for row in rows) - min(row.step.end - row.step.seconds for row in rows)
            yield len({row.worker for row in rows}), sum(row.step.samples for row in rows) / seconds
