"""Which of a job's checkpoints are dropped when it has written another one."""

import errno
import os
from pathlib import Path

import pytest

from elastic_ps.core.checkpoint_names import name_of
from tests.coordinator.server.test_checkpoint_storage import MINE, save, trouble


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES], ids=errno.errorcode.get)
def test_one_that_cannot_be_looked_at_now_is_not_dropped_as_torn(tmp_path, monkeypatch, number):
    kept = [save(tmp_path, version) for version in (1, 2, 3)][1:]
    failed = trouble(monkeypatch, "info", OSError(number, os.strerror(number)), f"{Path(kept[0]).name}/manifest")
    newest = save(tmp_path, 4)
    assert failed
    assert {*kept, newest} <= {str(path) for path in tmp_path.iterdir()}
    assert (tmp_path / name_of(2, MINE) / "manifest.json").exists()
