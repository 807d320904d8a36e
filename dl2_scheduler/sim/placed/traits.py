"""This module holds the hidden traits of models: what contention asks of them, and no profile says.

Nobody has published them. They are ours: of a plausible order, and such that the anchors of `calibrate` hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.profiles import Profile

_INFINITE = 1e12  # MB/s of what takes no time


@dataclass(frozen=True)
class Traits:
    """These `Traits` are those of one model; pairs are of a worker and of a server.

    Attributes:
        cpu_part: part of a step without exchange in which a worker computes on its cores.
        pcie_part: part of it in which it moves data to and from its GPU; the rest is the GPU's.
        hottest: part of the parameters that lies in tensors which cannot be split: all of it is one server's.
        crowding: exponent of the job's workers by which a server's computing grows: with 2, twice the workers take it
            four times as long, as it switches between them.
        cache_mb: of the last level that it works on, in MB.
        memory_gbs: that it reads and writes alone, in GB/s.
        sensitivity: what its computing takes more where nothing that it needs is in the cache, as a part of itself.
    """

    cpu_part: float
    pcie_part: float
    hottest: float
    crowding: float
    cache_mb: tuple[float, float]
    memory_gbs: tuple[float, float]
    sensitivity: float


TRAITS: Mapping[str, Traits] = {
    "ctc": Traits(1.0, 0.0, 0.70, 1.75, (14.0, 2.0), (9.0, 2.0), 1.5),
    "dssm": Traits(1.0, 0.0, 1.00, 1.85, (10.0, 4.0), (8.0, 4.0), 1.5),
    "inception-bn": Traits(0.6, 0.08, 1.00, 2.55, (9.0, 6.0), (7.0, 7.0), 1.7),
    "resnet-50": Traits(0.35, 0.06, 0.10, 2.00, (5.0, 7.0), (4.0, 9.0), 1.65),
    "resnext-110": Traits(0.75, 0.05, 0.30, 2.20, (14.0, 5.0), (9.0, 8.0), 3.0),
    "seq2seq": Traits(0.4, 0.1, 0.40, 1.40, (6.0, 6.0), (4.0, 5.0), 1.85),
    "vgg-16": Traits(0.25, 0.1, 0.25, 1.75, (5.0, 12.0), (4.0, 10.0), 2.7),
    "wlm": Traits(0.3, 0.1, 0.20, 1.65, (4.0, 7.0), (3.0, 7.0), 1.9),
}
"""By model. `hottest` and `crowding` are fitted to the 804 published speeds (`calibrate.count_errors`), the last three
chosen for the anchors (`calibrate.anchors`); those of models that no anchor names are alike.
"""


class Needs(NamedTuple):
    """`Needs` are what all kinds of tasks need, in arrays; a kind is `2 * model + role`.

    Attributes:
        cpu: cores that a task uses alone, (kinds,).
        memory: GB/s that it uses alone, (kinds,).
        cache: MB that it works on, (kinds,).
        sensitivity: see `Traits`, (kinds,).
        pcie: GB/s that it moves to and from its GPU, (kinds,).
        steps: of each model the seconds of a worker's step by phase: cpu, PCIe, GPU, (models, 3).
        exchange: of each model the MB, and the MB/s of a server's computing, of the wire, and within a node,
            (models, 4).
        hottest: see `Traits`, (models,).
        crowding: see there, (models,).
        batch: samples of a worker's step, (models,).
    """

    cpu: Floats
    memory: Floats
    cache: Floats
    sensitivity: Floats
    pcie: Floats
    steps: Floats
    exchange: Floats
    hottest: Floats
    crowding: Floats
    batch: Floats

    @classmethod
    def of(cls, profiles: Mapping[str, Profile], traits: Mapping[str, Traits]) -> "Needs":
        """Return the needs of all models of `profiles`, in alphabetical order."""
        known = [(profiles[name], traits[name]) for name in sorted(profiles)]
        return cls(
            _array([pair for profile, _ in known for pair in (profile.cpu_worker, profile.cpu_server)]),
            _array([amount for _, trait in known for amount in trait.memory_gbs]),
            _array([amount for _, trait in known for amount in trait.cache_mb]),
            _array([amount for _, trait in known for amount in (trait.sensitivity, trait.sensitivity)]),
            _array([amount for profile, trait in known for amount in (_pcie(profile, trait), 0.0)]),
            _array([_steps(profile, trait) for profile, trait in known]),
            _array([_exchange(profile) for profile, _ in known]),
            _array([trait.hottest for _, trait in known]),
            _array([trait.crowding for _, trait in known]),
            _array([profile.batch for profile, _ in known]),
        )


def _array(values: object) -> Floats:
    return np.array(values, dtype=float)


def _steps(profile: Profile, traits: Traits) -> tuple[float, float, float]:
    cpu, pcie = traits.cpu_part * profile.alone_s, traits.pcie_part * profile.alone_s
    return cpu, pcie, profile.alone_s - cpu - pcie


def _pcie(profile: Profile, traits: Traits) -> float:
    """Return what a worker moves to and from its GPU: its parameters and gradients, once a step, in GB/s."""
    step = profile.alone_s + profile.size_mb / profile.together_mbps
    return 2 * profile.size_mb / 1000 / step if traits.pcie_part else 0.0


def _exchange(profile: Profile) -> tuple[float, float, float, float]:
    """Return the MB, and the MB/s of the three things that an exchange is made of.

    Of the two published speeds of an exchange, one has the server's computing in it, the other one the wire, too. For
    the one model that is slower inside a node, both take half of the exchange between nodes.
    """
    if profile.together_mbps > profile.apart_mbps:
        wire = 1 / (1 / profile.apart_mbps - 1 / profile.together_mbps)
        return profile.size_mb, profile.together_mbps, wire, _INFINITE
    half = 2 * profile.apart_mbps
    return profile.size_mb, half, half, 1 / (1 / profile.together_mbps - 1 / half)
