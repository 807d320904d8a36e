"""The models that generated jobs train, with the sizes and demands of the authors' published configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dl2_scheduler.cluster.jobs import Resources

_SERVER: Resources = {"cpu": 2, "gpu": 0}
_GPU_WORKER: Resources = {"cpu": 2, "gpu": 4}
_CPU_WORKER: Resources = {"cpu": 2, "gpu": 0}


@dataclass(frozen=True)
class JobType:
    """A type of job is what DL2's table 1 says of a model and of its tasks.

    Attributes:
        epochs: that a job of it needs.
        samples_per_epoch: of its dataset, downscaled.
        worker: what one worker takes.
        server: what one parameter server takes.
    """

    epochs: float
    samples_per_epoch: float
    worker: Resources
    server: Resources = field(default_factory=lambda: _SERVER)

    @property
    def on_gpus(self) -> bool:
        """Return whether its workers take any."""
        return self.worker["gpu"] > 0


CATALOGUE: Mapping[str, JobType] = {
    "cnn-text-classification": JobType(13_800.0, 193.0, _CPU_WORKER),
    "dssm": JobType(9_900.0, 349.0, _CPU_WORKER),
    "inception-bn": JobType(16_200.0, 120.0, _GPU_WORKER),
    "resnet-50": JobType(9_000.0, 115.0, _GPU_WORKER),
    "resnext-110": JobType(1_500.0, 390.0, _GPU_WORKER),
    "seq2seq": JobType(28_500.0, 780.0, _GPU_WORKER),
    "vgg-16": JobType(28_800.0, 115.0, _GPU_WORKER),
    "wlm": JobType(6_900.0, 165.0, _GPU_WORKER),
}
"""By name, in alphabetical order."""
