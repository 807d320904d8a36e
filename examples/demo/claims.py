"""What the demo claims, and whether it holds."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console

from coordinator.archive import Archive
from coordinator.ctl.audit import Audit, audit
from protos import elastic_pb2 as pb

ACCURACY = 0.97
PLANS = 3


@dataclass(frozen=True)
class DemoResults:
    """These results are what the demo claims.

    Attributes:
        accuracy: of the scaled job, on the test images.
        baseline: of the same job without scaling.
        proof: of the ledger.
        plans: the operator's, in order.
    """

    accuracy: float
    baseline: float
    proof: Audit
    plans: tuple[pb.Plan, ...]

    def summary(self) -> dict[str, Any]:
        """Return what build/demo/summary.json has."""
        return {
            "test_accuracy": self.accuracy,
            "baseline_accuracy": self.baseline,
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

    def failures(self) -> list[str]:
        """Return what does not hold."""
        failures = []
        for name, value in (("with scaling", self.accuracy), ("without scaling", self.baseline)):
            if value < ACCURACY:
                failures.append(f"test accuracy {name} is {value:.4f}, under {ACCURACY}")
        failures += [f"exactly once: {problem}" for problem in self.proof.problems]
        if not self.proof.exactly_once and not self.proof.problems:
            failures.append("exactly once: the ledger is empty")
        committed = [plan for plan in self.plans if plan.phase == "COMMITTED"]
        if len(committed) != PLANS:
            failures.append(f"{len(committed)} of {PLANS} plans were committed")
        for plan in committed:
            if len(plan.steps_ms) != 4 or not plan.suspension_ms:
                failures.append(f"plan {plan.id} lacks the times of its steps or of its workers' suspension")
        return failures

    def show(self, console: Console) -> None:
        """Print it all."""
        for plan in self.plans:
            changed = " ".join([*(f"+{node}" for node in plan.joined), *(f"-{node}" for node in plan.left)])
            times = " + ".join(f"{ms:.0f}" for ms in plan.steps_ms)
            suspended = ", ".join(f"{worker} {ms:.2f}" for worker, ms in sorted(plan.suspension_ms.items()))
            console.print(f"plan {plan.id} ({plan.cause}): {changed}")
            console.print(f"  registration + assignment + migration + worker update: {times} ms")
            console.print(f"  moved {plan.bytes_moved:,} bytes; suspension {suspended} ms")
        console.print(f"test accuracy {self.accuracy:.4f}, without scaling {self.baseline:.4f}, at least {ACCURACY}")
        console.print(
            f"every sample of every epoch exactly once: {'proved' if self.proof.exactly_once else 'NOT PROVED'} from "
            f"{self.proof.updates} applied updates, {self.proof.epochs} epochs of {self.proof.samples[0]} samples"
        )


def gather(
    elastic: Archive, accuracy: float, baseline: float, samples: int, global_batch: int, epochs: int
) -> DemoResults:
    """Collect the results of both jobs.

    Args:
        elastic: of the scaled job.
        accuracy: of the scaled job.
        baseline: accuracy of the other.
        samples: N, of one epoch.
        global_batch: B.
        epochs: of the job.
    """
    plans = tuple(plan for plan in elastic.plans if plan.cause != "start")
    return DemoResults(accuracy, baseline, audit(elastic.ledger, samples, global_batch, epochs), plans)
