"""Jobs whose accelerator and network are emulated: what their steps take."""

import pytest

from benchmarks.live_learning_processes import MOST, Operator, arrivals, document
from benchmarks.scripts.emulated import GLOBAL_BATCH, KEYS, KINDS, StepCost
from dl2_scheduler.cluster.job_document import read_document
from protos import cluster_pb2 as pb


def test_a_step_has_compute_that_workers_divide_updates_that_servers_divide_and_the_busiest_link():
    kind = StepCost(compute=4.0, transfer=1.0, update=2.0)
    assert kind.seconds(1.0, 1, 1) == 4 + 1 + 2
    assert kind.seconds(0.25, 4, 1) == 1 + 4 + 2  # one server's link carries the parameters four times
    assert kind.seconds(1.0, 1, 4) == 4 + 1 + 0.5  # the worker's own link carries them once, whatever servers there are
    assert kind.samples_per_second(4, 4) == pytest.approx(GLOBAL_BATCH / 2.5)


def test_kinds_gain_from_what_they_are_named_after():
    def gain(name, workers, servers):
        kind = KINDS[name]
        return kind.samples_per_second(workers, servers) / kind.samples_per_second(1, 1)

    assert gain("computing", 4, 1) > 3 > 1.2 > gain("computing", 1, 4)
    assert gain("updating", 1, 4) > 2 > 1.2 > gain("updating", 4, 1)
    assert gain("transferring", 4, 4) < 1.5


def test_arrivals_hold_each_kind_as_often_and_are_documents_that_a_cluster_takes():
    jobs = arrivals(12, seed=3)
    assert jobs == arrivals(12, seed=3) != arrivals(12, seed=4)
    assert {kind: sum(job.model == kind for job in jobs) for kind in KINDS} == dict.fromkeys(KINDS, 3)
    for job in jobs:
        read = read_document(document(job))
        assert (read.spec.model_type, read.spec.epochs) == (job.model, job.epochs)
    assert len(KEYS) >= MOST  # a job is given no more servers than its model has blocks


class Cluster:
    """Told which policy to use."""

    def __init__(self):
        self.used = []

    def use_policy(self, policy):
        self.used.append(policy)


def look(operator, cluster, slot, percent, guard):
    comparison = f"slot {slot}: 3 jobs end after 9.0 slots under dl2:run, after 8.0 under drf ({percent:+d}%)"
    told = pb.PoliciesReply(policy="dl2:run", guard=guard, comparison=comparison)
    for _ in range(2):  # it looks more often than slots pass
        operator.look(10.0 * slot, cluster, told)


def test_the_operator_uses_a_policy_again_once_the_guard_has_found_it_better_for_five_slots():
    cluster, operator = Cluster(), Operator()
    for slot in range(8):
        look(operator, cluster, slot, -20, "")
    assert not operator.out  # it was never taken out
    for slot, percent in enumerate((40, -1, -5, 0, -3, -3, -3, -3), 8):
        look(operator, cluster, slot, percent, "worse for 5 slots")
    assert operator.out == [(80.0, None)]
    assert not cluster.used
    operator.look(160.0, cluster, pb.PoliciesReply(policy="dl2:run", guard="worse", comparison="slot 16: x (-3%)"))
    assert (cluster.used, operator.out) == (["dl2:run"], [(80.0, 160.0)])
    look(operator, cluster, 17, 12, "worse again")
    assert operator.out == [(80.0, 160.0), (170.0, None)]
