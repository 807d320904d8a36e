"""Where a user's state is, and what is said where nobody knows."""

from pathlib import Path

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import default_folder
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.state_folder import state_folder


def test_it_is_where_the_environment_says_and_else_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    assert state_folder({"XDG_STATE_HOME": "/state"}) == Path("/state")
    assert state_folder({}) == state_folder({"XDG_STATE_HOME": ""}) == Path("/home/x/.local/state")


def test_it_is_found_from_whatever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that changed its folder wrote its part of checkpoints elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert state_folder({"XDG_STATE_HOME": "state"}) == tmp_path / "state"


def test_who_has_no_home_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container's user of some number; it was "this should not happen"."""

    def homeless(_path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(ConfigurationError, match=r"no home directory is known for ~/.local/state: have XDG_STATE_HOME"):
        state_folder({})
    with pytest.raises(BadInput, match=r"no home directory is known .*; or give --folder"):
        default_folder({})
