"""A key of mid job is updated though a worker has pushed before it heard of it; w2 has no samples in a step."""

import numpy as np

from elastic_ps.control.codec import runs_from_pb
from elastic_ps.core.data_order import DataSpec, share
from elastic_ps.core.model import Run
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.awaited_peers import awaited_peers
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import InitMeta, PullMeta, PushMeta, RefusedMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_desk import FIRST, Desk
from tests.elastic_ps.server.server_reference import HYPER

DATA = DataSpec(True, 24, 2)
WORKERS = ("w0", "w1", "w2")


class Growing(Desk):
    """A server whose last tensor is new: its blocks have no values yet."""

    def __init__(self) -> None:
        super().__init__(data=DATA, filled=False)
        blocks = self.model.blocks_of[-1]
        self.known: Run = (0, blocks.start)
        self.new: Run = (blocks.start, len(blocks))
        self.slabs = {worker: self.slab() for worker in WORKERS}
        self.init(self.known)

    def init(self, run: Run) -> None:
        self.arrives("w0", Frame(InitMeta(runs=(run,)), FIRST, 0), self.first[self.model.span(run)])

    def gives(self, worker: str, *given: Run, version: int = 0) -> list[Frame]:
        rank = WORKERS.index(worker)
        part = share(DATA, version, rank, len(WORKERS))
        meta = PushMeta(
            runs=given if part else (),
            absent=() if part else given,
            empty=not part,
            slice=(0, version, 0, part.start, part.stop),
            hyper=HYPER if rank == 0 else None,
        )
        data = np.concatenate([self.slabs[worker][self.model.span(run)] for run in given]) if part and given else None
        return self.arrives(worker, Frame(meta, FIRST, version, len(part)), data)

    def versions(self, run: Run) -> set[int]:
        return set(self.state.store.versions[run[0] : sum(run)].tolist())

    def value(self, run: Run) -> bytes:
        return b"".join(piece.tobytes() for piece in self.state.store.values.pieces(run))

    def check_updated(self) -> None:
        self.reference.update([self.slabs["w0"], self.slabs["w1"]], [1, 1])
        assert self.versions(self.new) == {1}
        assert self.value(self.new) == self.reference.slab[self.model.span(self.new)].tobytes()
        written = self.state.ledger.report()[1]
        (entry,) = (entry for entry in written if sum(runs_from_pb(entry.runs)[-1]) == sum(self.new))
        assert (entry.version, entry.epoch, entry.step) == (0, 0, 0)
        assert [(part.worker, part.low, part.high) for part in entry.slices] == [("w0", 0, 1), ("w1", 1, 2)]


def test_whoever_has_no_samples_answers_for_keys_that_come_later() -> None:
    desk = Growing()
    for worker in WORKERS[::-1]:
        desk.gives(worker, desk.known)
    assert desk.versions(desk.known) == {1}
    desk.init(desk.new)
    assert desk.gives("w0", desk.new) == []
    assert awaited_peers(desk.state)[0].peer == "w1", "of w2 nothing lacks"
    assert {frame.kind for frame in desk.gives("w1", desk.new)} == {Kind.VALUE}
    desk.check_updated()


def test_it_may_say_so_last_and_without_a_block() -> None:
    desk = Growing()
    desk.init(desk.new)
    for worker in ("w0", "w1"):
        desk.gives(worker, desk.known, desk.new)
    assert desk.versions(desk.known) == desk.versions(desk.new) == {0}
    desk.gives("w2")
    assert desk.versions(desk.known) == {1}
    desk.check_updated()


def test_who_asks_for_the_next_version_has_pushed_the_one_before() -> None:
    """What w2 has said is forgotten in another configuration, and it is a step further."""
    desk = Growing()
    for worker in WORKERS:
        desk.gives(worker, desk.known)
    desk.init(desk.new)
    desk.state.new_gathering()
    desk.gives("w0", desk.new)
    desk.gives("w1", desk.new)
    assert desk.versions(desk.new) == {0}
    frames = desk.arrives("w2", Frame(PullMeta(runs=(desk.new,)), FIRST, 1))
    assert {(frame.kind, frame.version) for frame in frames} == {(Kind.VALUE, 1)}
    desk.check_updated()


def test_what_it_pushes_of_the_next_version_is_not_written_down_for_the_key() -> None:
    desk = Growing()
    for worker in WORKERS:
        desk.gives(worker, desk.known)
    desk.init(desk.new)
    desk.gives("w0", desk.new)
    desk.gives("w2", desk.known, version=1)
    desk.gives("w1", desk.new)
    desk.check_updated()


def test_a_worker_with_samples_that_has_left_it_out_is_told() -> None:
    desk = Growing()
    desk.init(desk.new)
    desk.gives("w2", desk.known, desk.new)
    desk.gives("w0", desk.known, desk.new)
    desk.gives("w1", desk.known)
    assert desk.versions(desk.known) == {1}
    assert desk.versions(desk.new) == {0}, "it may come yet"
    refused = [frame.of(RefusedMeta) for frame in desk.gives("w1", desk.known, version=1) if frame.kind is Kind.REFUSED]
    assert {frame.reason for frame in refused} == {Reason.MISMATCH}
    assert "pushed by rank 0 (w0) but not by rank 1 (w1)" in refused[0].detail


def test_a_key_whose_definer_has_died_stays_as_it_is_and_keeps_up() -> None:
    """Its first values had come; those who are left have not heard of it."""
    desk = Growing()
    desk.init(desk.new)
    desk.state.new_gathering()
    for version in range(2):
        for worker in WORKERS:
            desk.gives(worker, desk.known, version=version)
    assert desk.versions(desk.known) == {2}
    assert desk.versions(desk.new) == {1}, "nobody has said that it is past the next"
    assert desk.value(desk.new) == desk.first[desk.model.span(desk.new)].tobytes()
    assert len(desk.state.store.held(BlockStatus.PRIMARY)) == len(desk.model.blocks)


def test_a_version_that_no_worker_can_have_come_to_costs_a_server_no_time() -> None:
    desk = Growing()
    desk.init(desk.new)
    desk.state.new_gathering()
    for meta in (PullMeta(runs=(desk.known,)), PushMeta(empty=True)):
        assert desk.versions(desk.known) == desk.versions(desk.new) == {0}, "to ask for it says nothing"
        for worker in WORKERS:
            desk.arrives(worker, Frame(meta, FIRST, 1 << 60))
    assert desk.versions(desk.known) | desk.versions(desk.new) <= {0, 1}
