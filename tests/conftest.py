"""Fixtures for all tests, and what is left out where MXNet is not installed."""

import logging
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.paths import ROOT

# A busy machine fails no property, and everybody tries the same examples.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

WITH_MXNET = find_spec("mxnet") is not None

collect_ignore = [] if WITH_MXNET else ["elastic_ps/mxnet"]


_NUMERIC = ("elastic_ps/core", "elastic_ps/optimizers", "elastic_ps/server/updates", "elastic_ps/worker/script")
NUMERIC = [ROOT / "tests" / folder for folder in (*_NUMERIC, "dl2_scheduler/policies")]
"""Folders of tests of what numpy's version can change: arithmetic, bytes, the order of data."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of `NUMERIC`, and deselect those that are marked `mxnet` where it is not installed."""
    for item in items:
        if any(folder in item.path.parents for folder in NUMERIC):
            item.add_marker(pytest.mark.numeric)
    if WITH_MXNET:
        return
    left_out = [item for item in items if item.get_closest_marker("mxnet")]
    items[:] = [item for item in items if not item.get_closest_marker("mxnet")]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def _commands_leave_no_log():
    """A command that is run in this process logs to the stderr of its test, which is closed after it."""
    before = set(logging.root.handlers)
    yield
    for handler in set(logging.root.handlers) - before:
        if type(handler) is logging.StreamHandler:
            logging.root.removeHandler(handler)
