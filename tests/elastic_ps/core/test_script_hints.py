"""What an adapter adds to errors."""

import pytest

from elastic_ps.core import script_hints
from elastic_ps.core.errors import ConfigurationError, PeerLost
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS, PUSH_EACH_BATCH, give_hints


@pytest.fixture(autouse=True)
def hints(monkeypatch):
    monkeypatch.setattr(script_hints, "_hints", {})
    give_hints({OPTIMIZER_ON_SERVERS: "Here: call it", PUSH_EACH_BATCH: "Here: push"})


def test_an_error_that_asks_for_something_ends_with_how_it_is_done():
    error = ConfigurationError(f"key 3 needs {OPTIMIZER_ON_SERVERS}")
    assert str(error) == "key 3 needs an optimizer on the servers. Here: call it"


def test_a_text_that_came_from_a_peer_is_hinted_too_and_once():
    error = PeerLost("s0", f"it needs {OPTIMIZER_ON_SERVERS}")
    assert (
        str(ConfigurationError(str(error))) == str(error) == f"lost s0: it needs {OPTIMIZER_ON_SERVERS}. Here: call it"
    )


def test_other_errors_are_left_alone():
    assert str(ConfigurationError("key 3: shape () has no elements")) == "key 3: shape () has no elements"
