"""The demo's jobs: three kinds with speeds of their own, two of each, over time."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DemoJobKind:
    """A kind of jobs says what they run, and what a trained network of theirs reaches.

    Attributes:
        script: that they run.
        epochs: of each.
        score: its name in what the script writes.
        unit: of the score, for people.
        least: that a trained network reaches; None: there is `most`.
        most: that a trained network does not pass; None: there is `least`.
    """

    script: str
    epochs: int
    score: str
    unit: str
    least: float | None = None
    most: float | None = None

    def trained(self, score: float) -> bool:
        """Return whether a score is that of a network that has been trained."""
        return (self.least is None or score >= self.least) and (self.most is None or score <= self.most)


KINDS = {
    "digits": DemoJobKind("examples/digits.py", 40, "test_accuracy", "accuracy", least=0.9),
    "mlp": DemoJobKind("examples/mlp.py", 6, "test_accuracy", "accuracy", least=0.9),
    "lstm": DemoJobKind("examples/lstm.py", 20, "bits_per_character", "bits/letter", most=3.5),
}
"""By the type that policies know them as. Workers dominate in digits and lstm, servers in mlp."""


@dataclass(frozen=True)
class DemoJob:
    """This is one job to be submitted.

    Attributes:
        name: of it.
        kind: its type.
        arrival: seconds after the first.
        longer: times the epochs of its kind.
    """

    name: str
    kind: str
    arrival: float
    longer: int = 1

    def document(self, result: Path) -> str:
        """Return its ElasticJob.

        Args:
            result: file that the script writes its score to.
        """
        kind = KINDS[self.kind]
        epochs = kind.epochs * self.longer
        arguments = json.dumps(["--epochs", str(epochs), "--out", str(result)])
        return f"""
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {{name: {self.name}}}
spec:
  modelType: {self.kind}
  epochs: {epochs}
  workers:
    max: 4
    template: {{spec: {{containers: [{{command: [python, {kind.script}], args: {arguments}}}]}}}}
  servers:
    max: 3
"""


JOBS = (
    DemoJob("digits-1", "digits", 0),
    DemoJob("mlp-1", "mlp", 5),
    DemoJob("lstm-1", "lstm", 15),
    DemoJob("digits-2", "digits", 25),
    DemoJob("lstm-2", "lstm", 40),
    DemoJob("mlp-2", "mlp", 50),
)
