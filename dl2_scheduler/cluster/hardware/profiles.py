"""This module holds what a model's tasks need when nothing lies beside them: the profiles that placement works with."""

from collections.abc import Mapping
from dataclasses import dataclass

from dl2_scheduler.cluster.hardware.machines import CPU, GPU
from dl2_scheduler.cluster.jobs import Resources
from dl2_scheduler.cluster.ranges import MOST_AMOUNT


@dataclass(frozen=True)
class Profile:
    """A `Profile` of a model: what a job of it does with one worker and one server, alone.

    Attributes:
        batch: samples of a worker's step.
        batches: of an epoch.
        alone_s: seconds of a step without any exchange.
        size_mb: of the gradients, and of the parameters, in MB.
        apart_mbps: MB/s of the exchange between two nodes: a step takes `alone_s + size_mb / apart_mbps`.
        together_mbps: MB/s of the exchange inside a node.
        worker: what a worker asks for.
        server: what a server asks for.
        cpu_worker: cores that a worker uses.
        cpu_server: cores that a server uses.
    """

    batch: int
    batches: int
    alone_s: float
    size_mb: float
    apart_mbps: float
    together_mbps: float
    worker: Resources
    server: Resources
    cpu_worker: float
    cpu_server: float

    @property
    def samples_per_epoch(self) -> float:
        """Return the samples of an epoch."""
        return float(self.batch * self.batches)

    @property
    def step_s(self) -> float:
        """Return the seconds of a step of one worker and one server on two nodes."""
        return self.alone_s + self.size_mb / self.apart_mbps


_MOST = 1e9
"""Of a profile's own numbers."""


def check_profile(profile: Profile) -> None:
    """Refuse a profile that was read. Raises ValueError: a number is none, or not positive where it must be.

    Numbers of other types raise TypeError, ones that are too large OverflowError.
    """
    positive = (profile.batch, profile.batches, profile.alone_s, profile.size_mb)
    if not all(0 < number <= _MOST for number in (*positive, profile.apart_mbps, profile.together_mbps)):
        raise ValueError(f"{profile} has a number that is not above 0, or above {_MOST:g}")
    if not all(0 <= number <= _MOST for number in (profile.cpu_worker, profile.cpu_server)):
        raise ValueError(f"{profile} uses less than no core, or more than {_MOST:g}")
    for asked in (profile.worker, profile.server):
        if not isinstance(asked, Mapping) or not all(
            isinstance(name, str) and 0 <= amount <= MOST_AMOUNT for name, amount in asked.items()
        ):
            raise ValueError(f"{profile} asks for something that is no amount of a resource")


def _on_gpu(cpus: float = 2) -> Resources:
    return {CPU: cpus, GPU: 1}


_CPU_WORKER: Resources = {CPU: 4, GPU: 0}


def _server(cpus: float) -> Resources:
    return {CPU: cpus, GPU: 0}


PUBLISHED: Mapping[str, Profile] = {
    "ctc": Profile(50, 193, 0.585, 24.0, 60.8, 159.6, _CPU_WORKER, _server(1), 1.80, 0.22),
    "dssm": Profile(256, 349, 0.567, 6.0, 92.1, 65.6, _CPU_WORKER, _server(1), 2.01, 0.87),
    "inception-bn": Profile(128, 120, 0.815, 42.1, 145.9, 1082.0, _on_gpu(), _server(3), 1.51, 1.48),
    "resnet-50": Profile(32, 115, 0.449, 102.2, 91.9, 306.5, _on_gpu(), _server(3), 0.55, 1.91),
    "resnext-110": Profile(128, 390, 0.226, 6.92, 59.5, 63.0, _on_gpu(), _server(3), 1.39, 1.81),
    "seq2seq": Profile(64, 780, 0.075, 36.5, 120.1, 181.1, _on_gpu(), _server(3), 0.78, 0.67),
    "vgg-16": Profile(32, 115, 0.535, 553.4, 233.0, 427.8, _on_gpu(), _server(4), 0.54, 1.22),
    "wlm": Profile(160, 165, 0.154, 19.2, 10.4, 22.9, _on_gpu(), _server(1), 0.34, 1.67),
}
"""Eight MXNet jobs of the papers' testbed, by name: what their group's public harness says of them.

The exchange's speeds were derived from measured steps of one worker and one server, so that they give just those back;
they say nothing about other counts. `ctc` is the harness's text classification.
"""

HARMONY_MODELS = ("ctc", "resnet-50", "resnext-110", "seq2seq", "vgg-16", "wlm")
"""The six that its text names (its table is lost)."""
