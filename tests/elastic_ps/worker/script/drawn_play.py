"""A worker job that is `async` or `ssp`: batches are drawn, and each exchange is this worker's alone."""

from elastic_ps.control import codec
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model, members
from elastic_ps.core.optimizer import Hyper
from elastic_ps.data.sampler import Sampler
from elastic_ps.transport.frame_kinds import Kind
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.job_play import JobPlay
from tests.elastic_ps.worker.played_server import ALL, BLOCK_BYTES, SPLIT, TENSORS
from tests.elastic_ps.worker.worker_harness import ONE

OVER = pb.DrawReply(epoch=1, over=True)


def given(step, origin="w0", batch=0, epoch=0):
    return pb.DrawReply(epoch=epoch, step=step, origin=origin, batch=batch)


class DrawnPlay(JobPlay):
    """Steps of 4 out of 16 samples; the optimizer's learning rate is the number of the update."""

    def __init__(self, monkeypatch, **more):
        super().__init__(monkeypatch, **more)
        self.hyper = lambda number: Hyper(lr=float(number))

    def sampler(self):
        return Sampler(self.samples, batch=4, consistency="ssp", staleness=2)

    def running(self, *draws, workers=("w1", "w0")):
        """The script in its first step; this worker is not the chief."""
        self.draw(pb.DrawReply(epoch=0), *draws)
        return self.run(workers=workers)

    def draw(self, *replies):
        for reply in replies:
            self.session.draws.put(reply)

    def refresh(self, version, number=ONE, held=ALL):
        """The end of an epoch: every worker takes the values of the moment, of the blocks that have any."""
        for server, blocks in self.owned():
            server.wait(lambda server=server: version in [item.frame.version for item in server.of(Kind.PULL, number)])
            asked = [item for item in server.of(Kind.PULL, number) if item.frame.version == version]
            wanted = {block for item in asked for block in members(item.frame.runs)}
            assert wanted == set(blocks) & set(held), "what is asked for together is answered together"
            server.answer(version, [block for block in blocks if block in held], number)

    def join(self, listed=TENSORS):
        """Up to the rehearsal: w0 joins a job in which w1 trains, and that has these tensors."""
        data = DataSpec(True, 16, 4, exchanges=1, consistency="ssp", staleness=2)
        tensors = [codec.tensor_to_pb(tensor) for tensor in listed]
        split = SPLIT[: len(Model(listed, BLOCK_BYTES).blocks)]
        configuration = codec.configuration_to_pb(self.configuration(1, split, workers=("w1",)))
        self.direct(welcome=pb.Welcome(configuration=configuration, tensors=tensors, data=codec.data_to_pb(data)))
        self.joined = self.configuration(2, split, workers=("w1", "w0"))
        self.prepare(self.joined)
