"""An async job goes back to its checkpoint: each block takes each batch once, whatever it held when it was saved.

Two servers' states, each with blocks of its own, are saved at moments of their own, while workers draw and push.
"""

import io
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from coordinator.core.batches import async_batches
from coordinator.core.batches.async_batches import Book
from coordinator.core.checkpoints import saving
from coordinator.core.checkpoints.ledger_voids import Void, without
from coordinator.core.checkpoints.manifest import stretches
from coordinator.ctl.exactly_once_audit import Audit, audit
from elastic_ps.core.configuration import ConfigId, Member, Role
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.blocks.checkpoint_snapshot import CheckpointSnapshot
from elastic_ps.server.checkpoints.files import BlockFileWriter, BlockManifest
from elastic_ps.server.phases import BlockStatus
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_desk import DATA, Desk
from tests.sweeps import sweep

LATER = ("w3", "w4")
SMALL = replace(DATA, samples=4 * DATA.global_batch)


class Played:
    """Workers, the book of batches, and two servers."""

    def __init__(self, book: Book, workers: tuple[str, ...], desks: list[Desk], seed: int):
        self.rng = random.Random(seed)
        self.workers = workers
        self.desks = desks
        self.book = async_batches.enrol(book, set(workers))
        self.numbers = dict.fromkeys(workers, 0)
        self.todo: dict[str, list[int]] = {}  # by worker, servers that its batch has not been pushed to
        self.drawn: list[tuple[int, async_batches.Batch]] = []

    def turn(self) -> None:
        """A worker pushes to one more server, or draws its next batch."""
        worker = self.rng.choice(self.workers)
        if self.todo.get(worker):
            self.push(worker, self.todo[worker].pop())
            return
        number = self.numbers[worker] + 1
        book = async_batches.complete(self.book, worker, number, SMALL)
        self.book, answer = async_batches.draw(book, worker, number, None, SMALL)
        if answer is not None and answer.batch is not None:
            self.numbers[worker] = number
            self.drawn.append((answer.epoch, answer.batch))
            self.todo[worker] = self.rng.sample(range(len(self.desks)), len(self.desks))

    def push(self, worker: str, server: int) -> None:
        answer = self.book.pages[worker].answer
        assert answer is not None
        assert answer.batch is not None
        step = answer.epoch * SMALL.steps_per_epoch + answer.batch.step
        desk, batch = self.desks[server], BatchId(answer.batch.origin, answer.batch.number)
        desk.push(worker, batch, desk.slab(), step, number=desk.state.standing.config_id)

    def until_epoch(self, epoch: int) -> None:
        while self.book.epoch < epoch:
            self.turn()


def saved(snapshot: CheckpointSnapshot) -> tuple[bytes, str]:
    """A snapshot's data file and its contents."""
    file = io.BytesIO()
    writer = BlockFileWriter(file, "s.bin")
    while (piece := snapshot.next_piece()) is not None:
        writer.write(piece)
    return file.getvalue(), writer.contents("/c")


def restored(file: tuple[bytes, str], applied: dict) -> Desk:
    """A server that has loaded its blocks, as `Restorer` does it."""
    data, text = file
    desk = Desk(data=SMALL, filled=False)
    store, blocks = desk.state.store, list(range(len(desk.model.blocks)))
    manifest = BlockManifest(json.dumps({"version": 0, **json.loads(text), "applied": applied}).encode())
    for block, entry in manifest.entries(blocks)["s.bin"]:
        image = data[entry.offset : entry.offset + entry.length]
        entry.check(block, "s.bin", image)
        store.load((block, 1), np.frombuffer(image, np.uint8), entry.version, [entry.count], manifest.applied(block))
        store.status[block] = BlockStatus.PRIMARY
    current = desk.state.standing.current
    assert current is not None
    members = tuple(Member(worker, Role.WORKER, "h") for worker in LATER)
    table_now = replace(current, id=ConfigId(2, 1), workers=members)
    desk.state.standing = replace(desk.state.standing, current=table_now)
    desk.state.new_gathering()
    return desk


def proof(desks: list[Desk], floors: list[int], again: list[Desk], epochs: int) -> Audit:
    """Of both runs: the first server's blocks are numbered from 0 on, the second's behind them."""
    count = len(desks[0].model.blocks)
    void = Void(2, 0, stretches(floors))
    entries = []
    for server, desk in enumerate((*desks, *again)):
        for entry in desk.state.ledger.report()[1]:
            offset = server % 2 * count
            runs = [(first + offset, length) for first, length in zip(entry.runs[::2], entry.runs[1::2], strict=True)]
            kept = void.kept(entry.term, entry.version, runs)
            for part, voided in ((kept, False), (without(runs, kept), True)):
                marked = pb.LedgerEntry()
                marked.CopyFrom(entry)
                marked.voided = voided
                marked.runs[:] = [number for run in part for number in run]
                entries += [marked] if part and entry.epoch < epochs else []
    return audit(entries, SMALL.samples, SMALL.global_batch, epochs)


@pytest.mark.parametrize("seed", sweep(range(30)))
def test_each_block_takes_each_batch_once_over_a_restore(seed: int) -> None:
    rng = random.Random(seed)
    played = Played(Book(), ("w0", "w1", "w2"), [Desk(data=SMALL), Desk(data=SMALL)], seed)
    for _ in range(rng.randrange(60)):
        played.turn()
    before, played.drawn = played.book, []
    snapshots: dict[int, CheckpointSnapshot] = {}
    for server in rng.sample(range(2), 2):
        for _ in range(rng.randrange(12)):
            played.turn()
        state = played.desks[server].state
        snapshots[server] = state.snapshot = CheckpointSnapshot(state.store, 1, "", at_once=True)
    for _ in range(rng.randrange(20)):
        played.turn()
    files = [saved(snapshots[server]) for server in range(2)]
    contents = [json.loads(text) for _, text in files]
    book, applied = saving.unfinished(before, played.drawn, SMALL.exchanges, [one["applied"] for one in contents])
    again = [
        restored(file, {origin: content["applied"][origin] for origin in applied.keys() & content["applied"].keys()})
        for file, content in zip(files, contents, strict=True)
    ]
    floors = [entry["version"] for one in contents for entry in one["blocks"].values()]
    later = Played(book, LATER, again, seed + 1)
    later.until_epoch(played.book.epoch + 2)
    found = proof(played.desks, floors, again, played.book.epoch + 2)
    assert found.exactly_once, (found.problems, before, book)
    for desk in again:
        updates = desk.state.store.counts
        assert (updates >= SMALL.steps_per_epoch * (played.book.epoch + 2)).all()


def test_the_book_comes_with_what_blocks_hold_of_it_alone() -> None:
    """Workers of long ago are in every block's memory; the checkpoint needs those whose batches are given again."""
    before = Book(0, 3, (async_batches.Batch(2, "w1", 0),))
    told = [{"w0": [[0, 4, 7]], "w1": [[0, 2, 0]]}, {"w1": [[6, 1, 0]], "w2": [[4, 4, 9]]}]
    book, applied = saving.unfinished(before, [], 1, told)
    assert book.returned == before.returned
    assert applied == {"w1": ((0, 2, 0), (6, 1, 0))}
