"""The jobs of the comparison of placement policies on real processes."""

from collections import Counter

from benchmarks import placement_live
from benchmarks.placement_live import EPOCHS, TASK_SLOTS, _goals, _round, _rows, arrivals_of
from benchmarks.scripts.train_placed import KINDS
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import TrialFailed


def test_each_kind_comes_as_often_and_in_an_order_of_the_round():
    one, again, other = (list(arrivals_of(12, seed)) for seed in (0, 0, 1))
    assert one == again
    assert [arrival.kind for arrival in one] != [arrival.kind for arrival in other]
    assert set(Counter(arrival.kind for arrival in one).values()) == {3}
    assert [arrival.at for arrival in one] == sorted(arrival.at for arrival in one)
    assert set(EPOCHS) <= set(KINDS)


def test_documents_ask_for_one_worker_and_one_server_of_two_slots():
    job = read_document(next(arrivals_of(12, 0)).document())
    assert (job.spec.workers.max, job.spec.servers.max) == (1, 1)
    assert job.spec.workers.slots == job.spec.servers.slots == TASK_SLOTS
    assert job.spec.epochs == EPOCHS[job.model]


def test_a_round_that_fails_is_kept_and_is_a_goal_that_is_missed(monkeypatch, tmp_path):
    def played(placement, arrivals, folder):
        if folder.name == "best-fit-1":
            raise TrialFailed("best-fit-1: jobs did not end within 900 s")
        return {arrival.name: 10.0 if placement == "best-fit" else 20.0 for arrival in arrivals}

    monkeypatch.setattr(placement_live, "played", played)
    policies = ["best-fit", "load-balance"]
    rounds = [_round(policies, list(arrivals_of(4, number)), tmp_path, number) for number in range(2)]
    best, balanced = _rows(policies, rounds)
    assert (best["rounds"], best["mean s"], best["round 1"]) == (1, 10.0, None)
    assert best["failed"] == "round 1: best-fit-1: jobs did not end within 900 s"
    assert (balanced["rounds"], balanced["round 1"], balanced["failed"]) == (1, 20.0, None)
    (goal,) = _goals(policies, rounds)
    assert (goal.name, goal.value, goal.met) == ("rounds of a policy whose jobs all ended", 3, False)


def test_where_no_round_ended_nothing_is_compared():
    rounds = [{"learnt": "it failed", "best-fit": {"digits-0": 1.0}}]
    learnt, best = _rows(["learnt", "best-fit"], rounds)
    assert (learnt["mean s"], best["mean s"], best["round 0"]) == (None, None, 1.0)
    assert [goal.met for goal in _goals(["learnt", "best-fit"], rounds)] == [False]
