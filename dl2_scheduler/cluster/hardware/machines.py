"""This module describes what is inside the nodes: sockets with cores, GPUs and memory, and the links out of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.jobs import Node

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CPU, GPU = "cpu", "gpu"
"""Names of the resources that sockets have; a cpu is one hardware thread, as containers count it."""


def amounts(resources: Mapping[str, float]) -> tuple[float, float]:
    """Return the cpus and the GPUs among resources."""
    return resources.get(CPU, 0.0), resources.get(GPU, 0.0)


@dataclass(frozen=True)
class Socket:
    """A `Socket` is one processor of a node, with the GPUs that hang on it: a group, as placement counts places.

    Attributes:
        cores: physical ones.
        gpus: that are linked to it.
        pcie_gbps: what its GPUs and it can exchange, in Gb/s.
        memory_gbps: bandwidth of its memory, in Gb/s.
        cache_mb: of its last level, in MB.
        threads: hardware threads of a core.
    """

    cores: int
    gpus: int
    pcie_gbps: float = 128.0
    memory_gbps: float = 480.0
    cache_mb: float = 20.0
    threads: int = 2

    @property
    def cpus(self) -> int:
        """Return its hardware threads."""
        return self.cores * self.threads


@dataclass(frozen=True)
class Hardware:
    """`Hardware` is what one node is made of.

    Attributes:
        sockets: its groups.
        nic_gbps: what it can send, and receive, in Gb/s.
        qpi_gbps: what two of its sockets can exchange, in Gb/s.
        memory_gb: of the whole node, in GB.
    """

    sockets: tuple[Socket, ...]
    nic_gbps: float = 50.0
    qpi_gbps: float = 300.0
    memory_gb: float = 48.0

    def node(self, name: str) -> Node:
        """Return such a node as schedulers that know no sockets see it."""
        cpus, gpus = (float(sum(of(socket) for socket in self.sockets)) for of in (_cpus, _gpus))
        return Node(name, {CPU: cpus, GPU: gpus})


HARMONY = Hardware((Socket(cores=8, gpus=2),))
"""A server of Harmony's testbed (section VI-A): one processor of 8 cores, 2 GPUs, 48 GB, 50 Gb/s."""

GRAPH = Hardware((Socket(cores=8, gpus=2, pcie_gbps=128.0),) * 2, nic_gbps=10.0)
"""A server of the graph scheduler's default cluster (TNSM 2021, section VI): 2 processors of 8 cores, 4 GPUs."""

GRAPH_WIDE = Hardware((Socket(cores=16, gpus=4),) * 2, nic_gbps=10.0)
"""Its type (i), as a DGX-1: 2 processors of 16 cores, 8 GPUs."""

GRAPH_UNEVEN = Hardware((Socket(cores=16, gpus=4), Socket(cores=8, gpus=2)), nic_gbps=10.0)
"""Its type (ii): a processor of 16 cores with 4 GPUs, and one of 8 with 2."""

GRAPH_NARROW = Hardware((Socket(cores=8, gpus=2),), nic_gbps=10.0)
"""A fifth of the servers of its type (iii): a processor of 8 cores with 2 GPUs."""


def _cpus(socket: Socket) -> int:
    return socket.cpus


def _gpus(socket: Socket) -> int:
    return socket.gpus


@dataclass(frozen=True)
class Machines:
    """`Machines` are all nodes of a cluster, their sockets numbered through: the groups.

    Args:
        nodes: the hardware of each.
    """

    nodes: tuple[Hardware, ...]

    @cached_property
    def sockets(self) -> tuple[Socket, ...]:
        """All groups, node by node."""
        return tuple(socket for node in self.nodes for socket in node.sockets)

    @cached_property
    def node_of(self) -> Ints:
        """The node of each group, (groups,)."""
        return np.repeat(np.arange(len(self.nodes)), [len(node.sockets) for node in self.nodes])

    @cached_property
    def groups_of(self) -> tuple[tuple[int, ...], ...]:
        """The groups of each node."""
        ends = np.cumsum([len(node.sockets) for node in self.nodes]).tolist()
        return tuple(tuple(range(a, b)) for a, b in zip([0, *ends], ends, strict=False))

    @cached_property
    def capacity(self) -> Floats:
        """The cpus and GPUs of each group, (groups, 2)."""
        return np.array([[socket.cpus, socket.gpus] for socket in self.sockets], dtype=float).reshape(-1, 2)

    @classmethod
    def alike(cls, hardware: Hardware, count: int) -> "Machines":
        """Return so many nodes of the same hardware."""
        return cls((hardware,) * count)


def named(machines: Machines, prefix: str = "node") -> Sequence[Node]:
    """Return the nodes as schedulers that know no sockets see them, with a number each from 1 on."""
    return [hardware.node(f"{prefix}-{number}") for number, hardware in enumerate(machines.nodes, 1)]
