"""Each baseline and each fault of the published code, on an example that fits a sheet of paper."""

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobState
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.fifo import Fifo
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.policies.rules.srtf import Srtf
from dl2_scheduler.policies.rules.tetris import Tetris
from tests.dl2_scheduler.clusters import MOST, given, grid, job, nodes, snapshot

ONLY_LEAST = NodeRule.LEAST_USED_ONLY


def known(speed: dict[tuple[int, int], float]) -> TrueSpeeds:
    """Of one model by (servers, workers), 1 sample a second where nothing is said."""
    ones = {(p, w): 1.0 for p in range(1, MOST + 1) for w in range(1, MOST + 1)}
    return TrueSpeeds(Speeds({"even": grid(ones | speed)}))


TRUE = TrueSpeeds(Speeds({"even": grid()}))

BY_BUNDLES = {"drf": Drf(), "fifo": Fifo(), "srtf": Srtf(TRUE), "tetris": Tetris(TRUE)}


@pytest.mark.parametrize("name", BY_BUNDLES)
def test_a_job_grows_to_both_of_its_maxima(name: str) -> None:
    machines = nodes({"cpu": 8})
    for most in ((4, 1), (1, 4), (3, 2)):
        one = job(max_workers=most[0], max_servers=most[1])
        assert given(BY_BUNDLES[name], snapshot([one], machines)) == {1: most}
    assert given(BY_BUNDLES[name], snapshot([job(max_servers=1)], nodes({"cpu": 4}))) == {1: (3, 1)}
    gang = job(min_workers=2, min_servers=2, max_servers=2)
    assert given(BY_BUNDLES[name], snapshot([gang], machines)) == {1: (4, 2)}


@pytest.mark.parametrize("name", BY_BUNDLES)
def test_the_published_rules_stop_at_the_smaller_maximum(name: str) -> None:
    made = {"drf": Drf(True), "fifo": Fifo(True), "srtf": Srtf(TRUE, True), "tetris": Tetris(TRUE, True)}
    now = snapshot([job(max_servers=1), job(2)], nodes({"cpu": 12}))
    assert given(made[name], now, ONLY_LEAST)[1] == (1, 1)


def test_drf_counts_what_a_single_task_takes() -> None:
    """12 cpu; each worker takes 2, each server 1. In turn, from (1, 1) each at 3/12: job 1, whose servers are at their
    maximum, gets a worker (to 5/12), job 2 one of each (to 6/12), and 1 cpu is left, which job 2's server would need.
    """
    jobs = [job(1, worker={"cpu": 2}, max_servers=1), job(2, worker={"cpu": 2})]
    assert given(Drf(), snapshot(jobs, nodes({"cpu": 12}))) == {1: (2, 1), 2: (2, 2)}


def test_tetris_runs_a_job_whose_worker_and_server_lie_on_nodes_of_two_kinds() -> None:
    apart = {"worker": {"cpu": 4, "gpu": 1}, "server": {"cpu": 2}}
    kinds = nodes({"cpu": 4, "gpu": 1}, {"cpu": 4})
    assert given(Tetris(TRUE), snapshot([job(**apart, max_workers=1, max_servers=1)], kinds)) == {1: (1, 1)}
    assert given(Tetris(TRUE), snapshot([job(**apart)], kinds)) == {1: (1, 1)}, "a second worker has no place"
    assert given(Tetris(TRUE), snapshot([job(**apart)], [*kinds, *kinds])) == {1: (2, 2)}
    assert given(Tetris(TRUE, published=True), snapshot([job(**apart)], kinds), ONLY_LEAST) == {1: (0, 0)}


def test_drf_on_the_example_of_its_paper() -> None:
    """9 cpu and 18 GB; a task of A takes <1, 4>, one of B <3, 1>: A gets 3, B gets 2 (figure 3).

    Here a task is a worker and a server. In turn: A (to 4/18), B (to 3/9), A (to 8/18), B (to 6/9), A (to 12/18), and
    all cpu is gone.
    """
    a = job("a", worker={"cpu": 1, "gb": 2}, server={"gb": 2})
    b = job("b", worker={"cpu": 2, "gb": 1}, server={"cpu": 1})
    assert given(Drf(), snapshot([a, b], nodes({"cpu": 9, "gb": 18}))) == {"a": (3, 3), "b": (2, 2)}


def test_drf_goes_on_where_the_published_one_ends() -> None:
    """Job 1's bundle takes 4 of 8 cpu. Job 2's needs 6, so the slot is over; job 3 could have had two."""
    jobs = [job(1, max_workers=1, worker={"cpu": 3}), job(2, worker={"cpu": 5}), job(3)]
    now = snapshot(jobs, nodes({"cpu": 8}))
    assert given(Drf(), now) == {1: (1, 1), 2: (0, 0), 3: (2, 2)}
    assert given(Drf(published=True), now, ONLY_LEAST) == {1: (1, 1), 2: (0, 0), 3: (0, 0)}


def test_published_drf_looks_at_one_node_only() -> None:
    """Both nodes are empty, so it is the first, which has no gpu."""
    one = job(worker={"cpu": 1, "gpu": 1}, max_workers=1, max_servers=1)
    now = snapshot([one], nodes({"cpu": 8}, {"cpu": 4, "gpu": 1}))
    assert given(Drf(), now) == {1: (1, 1)}
    assert given(Drf(published=True), now, ONLY_LEAST) == {1: (0, 0)}


def test_fifo_gives_the_oldest_all_that_it_can_use() -> None:
    jobs = [job(1, max_workers=3, max_servers=3), job(2), job(3)]
    assert given(Fifo(), snapshot(jobs, nodes({"cpu": 10}))) == {1: (3, 3), 2: (2, 2), 3: (0, 0)}


def test_published_fifo_ends_the_slot_where_a_bundle_does_not_fit() -> None:
    """After the first job's two bundles 2 of 10 are free: the second job's bundle takes 4, the third's would fit."""
    jobs = [job(1, worker={"cpu": 3}, max_workers=2, max_servers=2), job(2, worker={"cpu": 3}), job(3)]
    now = snapshot(jobs, nodes({"cpu": 10}))
    assert given(Fifo(), now) == {1: (2, 2), 2: (0, 0), 3: (1, 1)}
    assert given(Fifo(published=True), now, ONLY_LEAST) == {1: (2, 2), 2: (0, 0), 3: (0, 0)}


def test_srtf_by_time_and_the_published_one_by_part() -> None:
    """Job 1 has half of 1000 epochs left, job 2 all of its 100: time says job 2, the part says job 1."""
    half, whole = JobState(job(1, epochs=1000.0), 500.0), JobState(job(2, epochs=100.0))
    now = snapshot([half, whole], nodes({"cpu": 8}))
    assert given(Srtf(TRUE), now) == {1: (0, 0), 2: (4, 4)}
    assert given(Srtf(TRUE, published=True), now, ONLY_LEAST) == {1: (4, 4), 2: (0, 0)}


def test_srtf_counts_samples_and_top_speed() -> None:
    """100 epochs of 2 samples at 4 a second take 50 s; 60 epochs of 1 sample at 1 a second take 60."""
    jobs = [job(1, epochs=60.0, max_workers=1), job(2, epochs=100.0, samples_per_epoch=2.0)]
    assert given(Srtf(TRUE), snapshot(jobs, nodes({"cpu": 2}))) == {1: (0, 0), 2: (1, 1)}


def tetris_jobs(small: float) -> list[Job]:
    """A bundle of job 1 takes half a node of 8 cpu and 8 gpu, one of job 2 a quarter of its cpu. At 1 sample a second
    job 1 needs 100 s, job 2 `small`."""
    big = job(1, epochs=100.0, worker={"cpu": 2, "gpu": 4}, server={"cpu": 2}, max_workers=2, max_servers=2)
    return [big, job(2, epochs=small, max_workers=1, max_servers=1)]


def test_tetris_weighs_alignment_and_remaining_work() -> None:
    """At the empty node the alignments are 1 and 1/4. Work is time x demand: 100 x 1 and small x 1/4.

    400 s: preferences are equal, so alignment decides; job 1's second bundle leaves no room for job 2's.
    50 s: preferences 0.01 and 0.08, scaled by 0.625 / 0.045: 1 + 0.14 against 0.25 + 1.11, so job 2 comes first, and
    after one more of job 1 (4 of the 6 cpu) no other fits.
    """
    speeds = known({})
    machines = nodes({"cpu": 8, "gpu": 8})
    assert given(Tetris(speeds), snapshot(tetris_jobs(400.0), machines)) == {1: (2, 2), 2: (0, 0)}
    assert given(Tetris(speeds), snapshot(tetris_jobs(50.0), machines)) == {1: (1, 1), 2: (1, 1)}


def test_published_tetris_prefers_what_has_most_left() -> None:
    """Preferences are demand x remaining part: job 1 (1 x 1) has both scores, however short job 2 is."""
    now = snapshot(tetris_jobs(50.0), nodes({"cpu": 8, "gpu": 8}))
    assert given(Tetris(TRUE, published=True), now, ONLY_LEAST) == {1: (2, 2), 2: (0, 0)}


def test_published_tetris_leaves_a_node_where_its_best_does_not_fit() -> None:
    """One bundle of job 1 fits a node of 6 cpu, with 2 left: it scores best again, and is in the way of job 2's."""
    now = snapshot(tetris_jobs(50.0), nodes({"cpu": 6, "gpu": 8}))
    assert given(Tetris(TRUE, published=True), now, ONLY_LEAST) == {1: (1, 1), 2: (0, 0)}
    assert given(Tetris(TRUE), now) == {1: (1, 1), 2: (1, 1)}


def test_optimus_takes_the_largest_gain() -> None:
    """600 samples. (1, 1): 600 s; a second worker makes it 300 s, a second server 400 s; from (1 server, 2 workers) a
    server makes it 150 s, a worker 290 s. Three tasks beyond the first two fit: worker, server, and then nothing
    gains.
    """
    speeds = known({(1, 2): 2.0, (2, 1): 1.5, (2, 2): 4.0, (1, 3): 2.07})
    now = snapshot([job(epochs=600.0)], nodes({"cpu": 5}))
    assert given(Optimus(speeds), now) == {1: (2, 2)}


def test_optimus_divides_a_gain_by_what_its_task_takes() -> None:
    """100 samples. A second worker saves 50 s and takes half of all gpus, a second server 47 s and an eighth of the
    cpu: 100 and 379 s for the whole. After the server nothing is a gain.
    """
    speeds = known({(1, 2): 2.0, (2, 1): 1.9})
    now = snapshot([job(worker={"gpu": 4}, server={"cpu": 1})], nodes({"cpu": 8, "gpu": 8}))
    assert given(Optimus(speeds), now) == {1: (1, 2)}
    assert given(Optimus(speeds, published=True), now, ONLY_LEAST) == {1: (2, 1)}


def test_optimus_prefers_the_job_that_takes_less_for_a_gain() -> None:
    """Both would be twice as fast with a second worker; job 2's takes half as much as job 1's. 2 cpu are left."""
    speeds = known({(1, 2): 2.0, (1, 3): 2.0})
    now = snapshot([job(1, worker={"cpu": 2}), job(2)], nodes({"cpu": 7}))
    assert given(Optimus(speeds), now) == {1: (1, 1), 2: (2, 1)}
    assert given(Optimus(speeds, published=True), now, ONLY_LEAST) == {1: (2, 1), 2: (1, 1)}


def test_optimus_sees_the_one_task_with_which_a_job_begins_to_train() -> None:
    speeds = TrueSpeeds(Speeds({"even": grid({(1, 1): 0.0, (2, 1): 0.0})}))
    assert given(Optimus(speeds), snapshot([job(1)], nodes({"cpu": 3}))) == {1: (2, 1)}


def test_optimus_prefers_the_job_that_gains_most_seconds() -> None:
    """A second worker halves both times; job 2 has twice the work. Every job gets one of each before."""
    speeds = known({(1, 2): 2.0, (1, 3): 2.0})
    jobs = [job(1, epochs=100.0), job(2, epochs=200.0)]
    assert given(Optimus(speeds), snapshot(jobs, nodes({"cpu": 5}))) == {1: (1, 1), 2: (2, 1)}


def test_optimus_ends_on_a_local_optimum_and_the_planner_jumps_over_it() -> None:
    """(2, 2) trains 3 times as fast as (1, 1), but either step on the way is a loss."""
    speeds = known({(1, 2): 0.9, (2, 1): 0.9, (2, 2): 3.0})
    now = snapshot([job()], nodes({"cpu": 8}))
    assert given(Optimus(speeds), now) == {1: (1, 1)}
    assert given(Planner(speeds), now) == {1: (2, 2)}


def test_published_optimus_ends_the_slot_where_a_task_does_not_fit() -> None:
    """Job 1 has one of each: 2 of 4 are free. Job 2's worker takes 3, and comes before job 1's second worker."""
    speeds = known({(1, 2): 2.0, (1, 3): 2.0})
    now = snapshot([job(1), job(2, worker={"cpu": 3})], nodes({"cpu": 4}))
    assert given(Optimus(speeds), now) == {1: (2, 1), 2: (0, 0)}
    assert given(Optimus(speeds, published=True), now, ONLY_LEAST) == {1: (1, 1), 2: (0, 0)}


def test_published_optimus_drops_a_job_whose_better_role_is_full() -> None:
    """A third worker would gain most, but two are the maximum; a second server would gain still."""
    speeds = known({(1, 2): 2.0, (1, 3): 9.0, (2, 2): 3.0, (2, 3): 9.0})
    now = snapshot([job(max_workers=2, max_servers=2)], nodes({"cpu": 8}))
    assert given(Optimus(speeds), now) == {1: (2, 2)}
    assert given(Optimus(speeds, published=True), now, ONLY_LEAST) == {1: (2, 1)}


def test_the_planner_takes_the_best_gain_for_its_share() -> None:
    """2 cpu are half of job 1's top speed and all of job 2's; 2 more are job 1's other half, if one of each."""
    corner = {(p, w): 1.0 if p == 1 or w == 1 else 2.0 for p in range(1, MOST + 1) for w in range(1, MOST + 1)}
    planner = Planner(TrueSpeeds(Speeds({"slow": grid(corner), "flat": grid(dict.fromkeys(corner, 5.0))})))
    jobs = [job(1, model="slow"), job(2, model="flat")]
    assert given(planner, snapshot(jobs, nodes({"cpu": 2}))) == {1: (0, 0), 2: (1, 1)}
    assert given(planner, snapshot(jobs, nodes({"cpu": 5}))) == {1: (1, 1), 2: (1, 1)}
    assert given(planner, snapshot(jobs, nodes({"cpu": 8}))) == {1: (2, 2), 2: (1, 1)}


def test_the_planner_takes_a_smaller_jump_where_the_best_one_does_not_fit() -> None:
    """(4, 4) is the best for its share, but 5 tasks are all that fit."""
    speeds = known({(2, 2): 2.0, (4, 4): 9.0})
    assert given(Planner(speeds), snapshot([job()], nodes({"cpu": 5}))) == {1: (2, 2)}
    assert given(Planner(speeds), snapshot([job()], nodes({"cpu": 8}))) == {1: (4, 4)}
