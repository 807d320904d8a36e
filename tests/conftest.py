"""Fixtures for all tests, and what is left out where MXNet is not installed."""

import logging
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

# A busy machine fails no property, and everybody tries the same examples.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

WITH_MXNET = find_spec("mxnet") is not None

collect_ignore = [] if WITH_MXNET else ["elastic_ps/mxnet"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are marked `mxnet` where it is not installed."""
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
