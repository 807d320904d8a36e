"""A whole worker job in this process, with a script that loops over a sampler."""

import numpy as np

from elastic_ps.control import codec
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.node.settings import NodeSettings
from elastic_ps.transport.choice import TRANSPORTS, TransportName
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import WorkerJob
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import MODEL, S0, S1, SPLIT, TENSORS, TOKEN
from tests.elastic_ps.worker.worker_harness import ONE, Aside, Play

KEYS = [tensor.key for tensor in TENSORS]


class JobPlay(Play):
    """A whole `WorkerJob`; its script's gradients are 1.0 in the first batch (a rehearsal), 2.0 in the next, ..."""

    def __init__(self, monkeypatch, **more):
        self._monkeypatch = monkeypatch
        super().__init__(**more)
        monkeypatch.setattr("elastic_ps.worker.script.worker_job._current", self.job)
        monkeypatch.setattr("elastic_ps.worker.wire.push_exchange.CHUNK_BYTES", 1)  # each block in a frame of its own
        tensors = [codec.tensor_to_pb(tensor) for tensor in TENSORS]
        self.session.declared = lambda _request: pb.DeclareReply(tensors=tensors, assignment=SPLIT)
        self.yielded = []
        self.samples = 16
        self.exchanges = [KEYS]  # the keys that are pushed together
        self.epochs = 1
        self.hyper = None  # gives the optimizer's values, by number of the update
        self.compression = None
        self.outs = [NumpyArray(np.zeros(tensor.shape, np.float32)) for tensor in TENSORS]

    def make_node(self, transport):
        self._monkeypatch.setattr("elastic_ps.worker.script.worker_job.Session", lambda _settings, _role: self.session)
        self._monkeypatch.setitem(TRANSPORTS, TransportName.AUTO, lambda *_: transport)
        self.job = WorkerJob(NodeSettings("nobody:1", TOKEN))
        return self.job.node

    def sampler(self):
        return Sampler(self.samples, 8)

    def script(self):
        store = self.job.open_store()
        if self.hyper is not None:
            store.set_optimizer(OptimizerSpec("sgd"), self.hyper)
        if self.compression is not None:
            store.set_compression(self.compression)
        gradients = [NumpyArray(np.zeros(tensor.shape, np.float32)) for tensor in TENSORS]
        for _epoch in epochs(self.epochs):
            for number, (step, indices, _batch) in enumerate(self.sampler(), 1):
                if number == 1:
                    store.broadcast(KEYS, gradients, [[out] for out in self.outs])
                for gradient in gradients:
                    gradient.values[:] = number
                self.yielded.append((step, indices.tolist()))
                for keys in self.exchanges:
                    chosen = [KEYS.index(key) for key in keys]
                    store.push(keys, [[gradients[index]] for index in chosen])
                    store.pull(keys, [[self.outs[index]] for index in chosen])

    def run(self, deaf=(), workers=("w0", "w1")):
        """The script up to its first step: rehearsed, declared, first values taken. `deaf` servers read no further."""
        self.begin(workers)
        return self.run_on(deaf)

    def run_on(self, deaf=()):
        """As `run`, of a worker that has begun."""
        running = Aside(self.script)
        for server, blocks in self.owned():
            server.await_frames(Kind.PULL)
            if server.name in deaf:
                server.reading.clear()
            server.answer(0, blocks, ONE)
        return running

    def owned(self):
        return zip(self.servers.values(), (S0, S1), strict=True)


def filled(block, number):
    return np.full(MODEL.blocks[block].extent // 4, number, dtype=np.float32).tobytes()


def slices(server, number):
    return {tuple(item.frame.meta.slice) for item in server.of(Kind.PUSH, number)}
