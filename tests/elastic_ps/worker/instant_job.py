"""A whole worker job of one static script whose servers are this process."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control import codec
from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.optimizer import Hyper
from elastic_ps.node.settings import NodeSettings
from elastic_ps.worker.script.barriers import Barriers
from elastic_ps.worker.script.optimizer_states import States
from elastic_ps.worker.script.worker_job import WorkerJob
from elastic_ps.worker.wire.parameters import FirstValues
from elastic_ps.worker.wire.push_exchange import Push
from elastic_ps.worker.wire.worker_node import WorkerNode
from protos import elastic_pb2 as pb

Values = NDArray[Any]
Update = Callable[[Values, Values, Hyper | None], None]


def add(value: Values, gradient: Values, _hyper: Hyper | None) -> None:
    value += gradient


def replace(value: Values, gradient: Values, _hyper: Hyper | None) -> None:
    """MXNet's rule for a store without updater."""
    value[...] = gradient


def sgd(value: Values, gradient: Values, hyper: Hyper | None) -> None:
    assert hyper is not None
    value -= hyper.lr * hyper.rescale_grad * gradient


class Servers:
    """In place of `Exchange`: makes the update at once. `exchanges` lists the keys of each."""

    def __init__(self, node: WorkerNode):
        self.exchanges: list[list[str]] = []
        self.update = add
        self._inbox = node.inbox
        self._inbox.begin(0)

    def run(self, push: Push, boundary: bool) -> bool:
        model = self._inbox.model
        self.exchanges.append([model.tensors[index].key for index in sorted(push.present)])
        for index in push.present:
            tensor, blocks = model.tensors[index], model.blocks_of[index]
            raw = np.concatenate(push.parts((blocks.start, len(blocks))))[: tensor.nbytes]
            update = replace if tensor.auxiliary else self.update
            update(self._inbox.tensor(index), raw.view(tensor.dtype).reshape(tensor.shape), push.hyper)
        return True


class SteppingServers(Servers):
    """Each exchange is a version, so an elastic job comes to its end."""

    def run(self, push: Push, boundary: bool) -> bool:
        super().run(push, boundary)
        assert self._inbox.version is not None
        self._inbox.version += 1
        return True


def declare(node: WorkerNode, request: pb.DeclareRequest, first: FirstValues, gives: bool = False) -> list[str]:
    """In place of `parameters.declare`: a new tensor has the script's first values."""
    known = len(node.inbox.model.tensors)
    node.inbox.grow(node.inbox.model.extended([codec.tensor_from_pb(tensor) for tensor in request.tensors]))
    for index in range(known, len(node.inbox.model.tensors)):
        blocks = node.inbox.model.blocks_of[index]
        run = (blocks.start, len(blocks))
        buffers = node.inbox.buffers(0, [run])
        memoryview(buffers[0])[:] = first.values(node.inbox.model.tensors[index].key)
        node.inbox.arrived(0, [run])
    return []


@contextmanager
def instant_job(update: Update = add, kind: type[Servers] = Servers) -> Iterator[tuple[WorkerJob, list[list[str]]]]:
    """The job, and the keys of each exchange that it has made."""
    with (
        patch("elastic_ps.worker.script.step.Exchange", kind),
        patch("elastic_ps.worker.script.worker_job.declare", declare),
        patch.object(WorkerNode, "close", lambda _node, _finished: None),
        patch.object(Barriers, "wait", lambda *_: None),
        patch.object(States, "counts", lambda _states, _keys: {}),
    ):
        job = WorkerJob(NodeSettings("nobody:1", b"t" * TOKEN_BYTES))
        servers = job._step._exchange
        assert isinstance(servers, Servers)
        servers.update = update
        alone = Configuration(ConfigId(1, 1), (Member("", Role.WORKER, "here"),), (), ())
        job.node.standing = dataclasses.replace(job.node.standing, current=alone)
        yield job, servers.exchanges


@contextmanager
def elastic_job(update: Update = add) -> Iterator[tuple[WorkerJob, list[list[str]]]]:
    """As `instant_job`, of a script that loops over a sampler: it is the job of this process."""
    with (
        instant_job(update, SteppingServers) as (job, exchanges),
        patch("elastic_ps.worker.script.worker_job.follow", lambda node: node.inbox.begin(0)),
        patch("elastic_ps.worker.script.worker_job._current", job),
    ):
        yield job, exchanges
