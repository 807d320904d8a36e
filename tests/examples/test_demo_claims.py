"""The demo's verdict: each claim that does not hold is named with its job."""

from coordinator.ctl.exactly_once_audit import audit
from examples.demo.claims import GLOBAL_BATCH, SAMPLES, DemoResults, ScaledJob
from protos import elastic_pb2 as pb

STEPS = -(-SAMPLES // GLOBAL_BATCH)


def plans(count=3, suspension=0.1):
    told = {"w0": suspension} if suspension else {}
    return tuple(pb.Plan(id=n, phase="COMMITTED", steps_ms=[1, 2, 3, 4], suspension_ms=told) for n in range(count))


def ledger(left_out=()):
    return [
        pb.LedgerEntry(
            server="workers.1",
            version=step,
            runs=[0, 1],
            step=step,
            slices=[pb.Slice(worker="w0", low=step * GLOBAL_BATCH, high=min((step + 1) * GLOBAL_BATCH, SAMPLES))],
        )
        for step in range(STEPS)
        if step not in left_out
    ]


def failures(accuracy=0.98, entries=None, made=None, baseline=0.98, device=None):
    proof = audit(ledger() if entries is None else entries, SAMPLES, GLOBAL_BATCH, 1)
    job = ScaledJob("all-reduce", accuracy, proof, plans() if made is None else made)
    return DemoResults(baseline, (job,), plans() if device is None else device, ()).failures()


def test_what_holds():
    assert failures() == []


def test_what_does_not_hold_is_named_with_its_job():
    assert failures(accuracy=0.9) == ["all-reduce: test accuracy is 0.9000, under 0.97"]
    assert failures(baseline=0.9) == ["test accuracy without scaling is 0.9000, under 0.97"]
    assert failures(device=plans(2)) == ["emulated device: 2 of 3 plans were committed"]
    assert failures(made=plans(2)) == ["all-reduce: 2 of 3 plans were committed"]
    assert failures(made=plans(suspension=0))[0].startswith("all-reduce: plan 0 lacks the times")
    (lost,) = failures(entries=ledger(left_out=[3]))
    assert "position 192 was used 0 times" in lost
