import random
import tracemalloc

import pytest

from coordinator.ctl.exactly_once_audit import audit, first_whole_epoch
from elastic_ps.core.data_order import DataSpec, share
from protos import elastic_pb2 as pb

SAMPLES, BATCH, EPOCHS = 53, 8, 3


def ledger(workers_at=lambda version: 2, servers=((0, 3), (3, 2)), spec=None):
    spec = spec or DataSpec(True, SAMPLES, BATCH)
    entries, version = [], 0
    for epoch in range(EPOCHS):
        for step in range(spec.steps_per_epoch):
            workers = workers_at(version)
            slices = [share(spec, step, rank, workers) for rank in range(workers)]
            for server, (first, count) in enumerate(servers):
                entries.append(
                    pb.LedgerEntry(
                        server=f"s{server}",
                        version=version,
                        runs=[first, count],
                        epoch=epoch,
                        step=step,
                        slices=[
                            pb.Slice(worker=f"w{rank}", low=part.start, high=part.stop)
                            for rank, part in enumerate(slices)
                        ],
                    )
                )
            version += 1
    return entries


def check(entries, last="short"):
    return audit(entries, SAMPLES, BATCH, EPOCHS, last)


@pytest.mark.parametrize("last", ["short", "drop", "wrap"])
def test_a_whole_ledger_is_proof_whatever_the_number_of_workers(last):
    found = check(ledger(lambda version: 1 + version % 11, spec=DataSpec(True, SAMPLES, BATCH, last)), last)
    assert found.problems == ()
    assert found.exactly_once
    assert found.updates == EPOCHS * (SAMPLES // BATCH + (last != "drop")) * 2


def test_one_lost_entry_is_found():
    entries = ledger()
    del entries[7]
    assert not check(entries).exactly_once


def test_blocks_of_which_no_update_was_recorded_are_told():
    """As frozen layers have none, they are no contradiction; a proof says nothing of them."""
    entries = ledger()
    assert audit(entries, SAMPLES, BATCH, EPOCHS, blocks=5).remarks == ()
    lost = [entry for entry in entries if entry.server == "s0"]
    found = audit(lost, SAMPLES, BATCH, EPOCHS, blocks=5)
    assert found.exactly_once
    assert found.remarks == (
        "no update was recorded of 2 of 5 blocks, such as 3: their layers are frozen, or a server's entries are lost",
    )
    lost = [entry for entry in entries if entry.server == "s0" or entry.epoch != 1]
    (told,) = audit(lost, SAMPLES, BATCH, EPOCHS, blocks=5).remarks
    assert told.startswith("no update was recorded in some epochs of 2 blocks, such as 3 in 1: ")


def test_a_ledger_that_was_lost_proves_the_epochs_that_every_servers_part_has_whole():
    """One server had not reported the end of epoch 0 yet, the other not the middle of epoch 1."""
    whole = {"s0": (0, 6), "s1": (1, 2)}
    entries = [entry for entry in ledger() if (entry.epoch, entry.step) >= whole[entry.server]]
    assert first_whole_epoch(entries) == 2
    assert audit(entries, SAMPLES, BATCH, EPOCHS, begin=2).exactly_once
    assert not audit(entries, SAMPLES, BATCH, EPOCHS, begin=1).exactly_once


def test_one_corrupt_position_is_found():
    entries = ledger()
    entries[9].slices[0].high -= 1
    found = check(entries)
    assert not found.exactly_once
    assert "used 0 times instead of 1" in found.problems[0]


def test_a_swapped_slice_is_found():
    entries = ledger()
    first, second = entries[2].slices[1], entries[4].slices[1]
    first.low, first.high, second.low, second.high = second.low, second.high, first.low + 1, first.high
    assert not check(entries).exactly_once


def test_an_update_applied_twice_is_found():
    entries = ledger()
    entries.append(entries[5])
    assert any("applied twice" in problem for problem in check(entries).problems)


def test_updates_past_the_last_epoch_are_found():
    entries = ledger()
    entries.append(pb.LedgerEntry(version=999, runs=[0, 5], epoch=EPOCHS, slices=[pb.Slice(low=0, high=8)]))
    assert any("not to make" in problem for problem in check(entries).problems)


def test_voided_entries_do_not_count():
    entries = ledger()
    again = pb.LedgerEntry()
    again.CopyFrom(entries[6])
    again.voided = True
    found = check([*entries, again])
    assert found.exactly_once
    assert found.voided == 1


def test_an_audit_of_a_long_job_takes_no_memory_for_each_step_of_each_block():
    """A week of a job is a million steps, and a model has hundreds of blocks."""
    spec = DataSpec(True, 8000, 8)
    steps = spec.steps_per_epoch

    def entries():
        for step in range(steps):
            slices = [pb.Slice(worker="w0", low=8 * step, high=8 * step + 8)]
            for server in range(2):
                yield pb.LedgerEntry(
                    server=f"s{server}", version=step, runs=[250 * server, 250], step=step, slices=slices
                )

    tracemalloc.start()
    found = audit(entries(), spec.samples, spec.global_batch, 1, blocks=500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.exactly_once
    assert peak < 8 << 20  # as sets of version and block they were 80 MiB


def test_of_blocks_told_together_and_alone_each_is_judged_by_all_its_entries():
    """Which blocks one entry tells of depends on when pushes come."""
    spec = DataSpec(True, SAMPLES, BATCH)
    entries = [
        entry
        for version, entry in enumerate(ledger(servers=((0, 5),), spec=spec))
        for entry in ([entry] if version % 2 else parted(entry))
    ]
    assert check(entries).exactly_once
    again = pb.LedgerEntry()
    again.CopyFrom(next(entry for entry in entries if list(entry.runs) == [2, 3]))
    again.server, again.runs[:] = "s9", [1, 2]
    assert check([*entries, again]).problems[:2] == (
        f"block 1: version {again.version} was applied twice, again by s9",
        f"block 2: version {again.version} was applied twice, again by s9",
    )


def parted(entry):
    parts = [pb.LedgerEntry(), pb.LedgerEntry()]
    for part, runs in zip(parts, ([0, 2], [2, 3]), strict=True):
        part.CopyFrom(entry)
        part.runs[:] = runs
    return parts


def test_an_empty_ledger_proves_nothing():
    assert not check([]).exactly_once


# ---- async and ssp: each push an update of its own, in an order of each block's own ----------------------------------


def drawn_ledger(spec, seed=3):
    """Batches by turns of three workers; each server takes them in an order of its own, with versions of its own."""
    orders = random.Random(seed)
    entries = []
    for server, runs in enumerate(([0, 3], [3, 2])):
        version = 0
        for epoch in range(EPOCHS):
            for step in orders.sample(range(spec.steps_per_epoch), spec.steps_per_epoch):
                part = share(spec, step, 0, 1)
                piece = pb.Slice(worker=f"w{orders.randrange(3)}", low=part.start, high=part.stop)
                entries.append(
                    pb.LedgerEntry(
                        server=f"s{server}", version=version, runs=runs, epoch=epoch, step=step, slices=[piece]
                    )
                )
                version += 1
    return entries


@pytest.mark.parametrize("last", ["short", "drop", "wrap"])
def test_drawn_batches_are_proved_in_whatever_order_they_came(last):
    found = check(drawn_ledger(DataSpec(True, SAMPLES, BATCH, last, consistency="async")), last)
    assert found.exactly_once, found.problems


def test_a_lost_drawn_batch_is_found():
    entries = drawn_ledger(DataSpec(True, SAMPLES, BATCH, consistency="async"))
    lost = entries.pop(9)
    found = check(entries)
    assert f"epoch {lost.epoch}, block 0: position {lost.slices[0].low} was used 0 times" in found.problems[0]


def test_a_doubled_drawn_batch_is_found():
    entries = drawn_ledger(DataSpec(True, SAMPLES, BATCH, consistency="async"))
    again = pb.LedgerEntry()
    again.CopyFrom(entries[9])
    again.version, again.slices[0].worker = 999, "w7"  # another worker, an update of its own
    found = check([*entries, again])
    assert f"position {again.slices[0].low} was used 2 times" in found.problems[0]
