"""Resource quantities, and what a pod takes of its node."""

import pytest

from dl2_scheduler.backends.kube.apiserver.quantities import pod_requests
from dl2_scheduler.cluster.document.quantities import amount
from dl2_scheduler.cluster.errors import BadInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250m", 0.25), ("2", 2), (4, 4), (0.5, 0.5), ("1.5Gi", 1.5 * 2**30), ("2e3", 2000), ("1E", 1e18), (".5", 0.5),
        ("1k", 1000), ("129M", 129e6), ("1Ti", 2**40), ("100n", 1e-7), ("5u", 5e-6), ("1Ei", 2**60),
    ],
)  # fmt: skip
def test_an_amount(text, expected):
    assert amount(text) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["", "cpu", "1.5.2", "1 Gi", "1gi", "--1", "1mi"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(BadInput, match="is no amount"):
        amount(text)


def container(requests=None, limits=None, **more):
    return {"resources": {"requests": requests, "limits": limits}, **more}


def test_containers_add_up_and_a_limit_alone_is_a_request():
    spec = {"containers": [container({"cpu": "1"}, {"cpu": "2"}), container(None, {"cpu": "500m", "memory": "1Gi"})]}
    assert pod_requests(spec) == {"cpu": 1.5, "memory": 2**30, "pods": 1}


def test_what_begins_first_counts_where_it_takes_more():
    first = [
        container({"cpu": "1"}, restartPolicy="Always"),
        container({"cpu": "3"}),
        container({"cpu": "2", "memory": "1"}),
    ]
    assert pod_requests({"containers": [container({"cpu": "1"})], "initContainers": first}) == {
        "cpu": 4, "memory": 1, "pods": 1,
    }  # fmt: skip


def test_the_overhead_of_a_runtime_counts():
    assert pod_requests({"containers": [{}], "overhead": {"cpu": "250m"}}) == {"cpu": 0.25, "pods": 1}


def test_a_request_may_begin_with_a_plus():
    assert pod_requests({"containers": [container({"cpu": "+2"})]})["cpu"] == 2.0


def test_containers_that_a_name_alone_stands_for_are_none():
    assert pod_requests({"containers": [container({"cpu": "2"})], "initContainers": None}) == {"cpu": 2.0, "pods": 1.0}


def test_what_a_pod_asks_for_as_a_whole_stands_for_its_containers():
    """As the API server has it: a limit alone is a request where no container makes one."""
    own = container({"cpu": "3"}, {"memory": "4", "nvidia.com/gpu": 9})
    spec = {"containers": [container({"cpu": "1", "nvidia.com/gpu": 1}), {}], "overhead": {"cpu": "250m"}, **own}
    assert pod_requests(spec) == {"cpu": 3.25, "memory": 4.0, "nvidia.com/gpu": 1.0, "pods": 1.0}
