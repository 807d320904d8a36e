"""Another cluster's network decides about one's own types as it does there."""

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.federated.translated import to_digests, translated
from dl2_scheduler.policies.learnt.dl2 import learnt
from tests.dl2_scheduler.learning.federated.clusters import network

ONE = {"slots": 1.0}


def scene(models):
    jobs = [JobState(Job(f"j{at}", at, model, 8.0, 200.0, ONE, ONE, 4, 4)) for at, model in enumerate(models)]
    return Snapshot(0, 60.0, (Node("n", {"slots": 17.0}),), tuple(jobs))


def granted(weights, snapshot):
    grants = learnt(weights).allocate(snapshot, FreeResources(snapshot)).grants
    return {name: (grant.workers, grant.servers) for name, grant in grants.items()}


def test_it_decides_as_there_whatever_the_order_of_types():
    snapshot = scene("abcab")
    for seed in range(5):
        theirs = network("abc", seed)
        here = translated(to_digests(theirs), ("c", "a", "b"))
        assert here.models == ("c", "a", "b")
        assert granted(here, snapshot) == granted(theirs, snapshot)


def test_a_type_that_it_does_not_know_is_its_mean_type():
    theirs = network("ab")
    here = translated(to_digests(theirs), ("x", "b"))
    base = theirs.arrays["base.weight"]
    assert np.allclose(here.arrays["base.weight"][:, 0], base[:, :2].mean(axis=1))
    assert np.array_equal(here.arrays["base.weight"][:, 1:], base[:, 1:])
    assert here.arrays["base.weight"].dtype == np.float32
    assert np.array_equal(here.arrays["hidden.weight"], theirs.arrays["hidden.weight"])
