"""Fixtures for all tests, and what is left out where MXNet is not installed."""

import gc
import logging
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.paths import ROOT
from tests.sweeps import examples

# A busy machine fails no property, and everybody tries the same examples.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

WITH_MXNET = find_spec("mxnet") is not None

_OF_TORCH = ["elastic_ps/torch", "e2e/test_torch.py", "e2e/test_cluster_without_servers.py"]
collect_ignore = _OF_TORCH if WITH_MXNET else ["elastic_ps/mxnet"]
"""Each adapter in the environment of its own: of two in a process, the one imported last says what errors advise."""


_NUMERIC = ("elastic_ps/core", "elastic_ps/optimizers", "elastic_ps/server/updates", "elastic_ps/worker/script")
NUMERIC = tuple(f"{ROOT}/tests/{folder}/" for folder in (*_NUMERIC, "dl2_scheduler/policies"))
"""Folders of tests of what numpy's version can change: arithmetic, bytes, the order of data."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage meanwhile: what is imported stays, and to look through it takes as long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tests of `NUMERIC`, deselect those that are marked `mxnet` where it is not installed, and deal the rest.

    Each of several workers gets an equal part of the list, in its order (`--dist worksteal`); what remains at the end
    is shared anew. So that nobody is alone with a long test then, each part begins with its share of those.
    """
    for item in items:
        if str(item.path).startswith(NUMERIC):
            item.add_marker(pytest.mark.numeric)
    if not WITH_MXNET:
        left_out = [item for item in items if item.get_closest_marker("mxnet")]
        items[:] = [item for item in items if not item.get_closest_marker("mxnet")]
        config.hook.pytest_deselected(items=left_out)
    yield
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = dealt(items, workers)


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in the order in which each part begins with the longest that are left."""
    longest = sorted(filter(weight, items), key=weight, reverse=True)
    others = [item for item in items if not weight(item)]
    found, rest = [], len(items)
    for number in range(workers):
        mine = longest[number::workers]
        size = rest // (workers - number)
        rest -= size
        fill = max(0, size - len(mine))
        found += mine + others[:fill]
        del others[:fill]
    return found + others


def weight(item: pytest.Item) -> float:
    """Return about how long a test takes, beside the others: those with a limit of their own are the longest."""
    limit = item.get_closest_marker("timeout")
    if limit is not None:
        return float(limit.args[0])
    return float(any(item.get_closest_marker(name) for name in ("slow", "mxnet")))


@pytest.fixture(autouse=True)
def _commands_leave_no_log():
    """A command that is run in this process logs to the stderr of its test, which is closed after it."""
    before = set(logging.root.handlers)
    yield
    for handler in set(logging.root.handlers) - before:
        if type(handler) is logging.StreamHandler:
            logging.root.removeHandler(handler)
