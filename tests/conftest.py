"""For all tests."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _commands_leave_no_log():
    """A command that is run in this process logs to the stderr of its test, which is closed after it."""
    before = set(logging.root.handlers)
    yield
    for handler in set(logging.root.handlers) - before:
        if type(handler) is logging.StreamHandler:
            logging.root.removeHandler(handler)
