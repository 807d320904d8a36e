"""Who is refused where some workers push a key that others do not."""

from elastic_ps.server.phases import Given
from elastic_ps.server.updates.mismatch import mismatch
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import RefusedMeta
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import TENSORS

GRADIENT, ABSENT, EMPTY = int(Given.GRADIENT), int(Given.ABSENT), int(Given.EMPTY)
WORKERS = ("w0", "w1", "w2")


def told(*given: int, settled: set[str]) -> tuple[str, ...]:
    return mismatch(["b"], given, WORKERS, settled).workers


def test_who_has_joined_ends_alone_where_the_others_agree() -> None:
    refusal = mismatch(["a", "b", "a"], (GRADIENT, GRADIENT, ABSENT), WORKERS, {"w0", "w1"})
    assert refusal.workers == ("w2",)
    assert refusal.detail.startswith("key a, b: pushed by rank 0 (w0), 1 (w1) but not by rank 2 (w2); every worker")
    assert refusal.detail.endswith("(`if epoch >= 3` in place of `if epoch == 3`)")
    assert told(ABSENT, ABSENT, GRADIENT, settled={"w0", "w1"}) == ("w2",)
    assert told(ABSENT, EMPTY, GRADIENT, settled={"w0", "w1"}) == ("w2",)
    assert told(ABSENT, GRADIENT, GRADIENT, settled={"w0"}) == ("w1", "w2")


def test_all_end_where_nobody_can_be_told_to_be_right() -> None:
    assert told(GRADIENT, ABSENT, GRADIENT, settled=set()) == WORKERS, "a job that begins"
    assert told(GRADIENT, ABSENT, GRADIENT, settled={"w0", "w1"}) == WORKERS
    assert told(EMPTY, ABSENT, GRADIENT, settled={"w0"}) == WORKERS
    assert "epoch" not in mismatch(["b"], (GRADIENT, ABSENT), WORKERS, set()).detail


def test_the_others_make_the_step_without_a_joiner_that_pushes_other_keys(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    job.add_worker("w2")
    new = job.next(["w0", "w1", "w2"], ["s0", "s1"], list(job.configuration.assignment))  # type: ignore[union-attr]
    job.prepare(new, ["s0", "s1"])
    job.adopt(new, ["s0", "s1"])
    blocks = list(job.model.blocks_of[1])
    slabs = [job.random_slab() for _ in WORKERS]
    for name, slab in zip(WORKERS, slabs, strict=True):
        job.push(name, 1, slab, absent=blocks if name == "w2" else ())
    refused = job.workers["w2"].await_kind(Kind.REFUSED).of(RefusedMeta)
    assert refused.reason is Reason.APART
    assert "key 1: pushed by rank 0 (w0), 1 (w1) but not by rank 2 (w2)" in refused.detail
    others = sorted(set(range(len(job.model.blocks))) - set(blocks))
    for name in WORKERS[:2]:
        job.workers[name].await_version(2, others)
    survivors = job.next(["w0", "w1"], ["s0", "s1"], list(new.assignment))
    job.prepare(survivors, ["s0", "s1"], dead=["w2"])
    job.adopt(survivors, ["s0", "s1"])
    for name, slab in zip(WORKERS[:2], slabs, strict=False):
        job.push(name, 1, slab, blocks=blocks)
    for name in WORKERS[:2]:
        job.workers[name].await_version(2)
        assert Kind.REFUSED not in [received.frame.kind for received in job.workers[name].received]
