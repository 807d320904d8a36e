"""The jobs of the comparison of placement policies on real processes."""

from collections import Counter

from benchmarks.placement_live import EPOCHS, TASK_SLOTS, arrivals_of
from benchmarks.scripts.train_placed import KINDS
from dl2_scheduler.cluster.document.job_document import read_document


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
