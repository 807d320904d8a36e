"""Which of a job's checkpoints are dropped when it has written another one."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.server import checkpoint_storage
from elastic_ps.core.checkpoint_names import name_of
from tests.coordinator.server.test_checkpoint_storage import MINE, manifest, save, trouble


def write(root, version, damaged=frozenset()):
    url = str(root / name_of(version, MINE))
    checkpoint_storage.write(url, replace(manifest(version), blocks={}), damaged)
    return url


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES], ids=errno.errorcode.get)
def test_one_that_cannot_be_looked_at_now_is_not_dropped_as_torn(tmp_path, monkeypatch, number):
    kept = [save(tmp_path, version) for version in (1, 2, 3)][1:]
    failed = trouble(monkeypatch, "info", OSError(number, os.strerror(number)), f"{Path(kept[0]).name}/manifest")
    newest = save(tmp_path, 4)
    assert failed
    assert {*kept, newest} <= {str(path) for path in tmp_path.iterdir()}
    assert (tmp_path / name_of(2, MINE) / "manifest.json").exists()


def test_damaged_ones_are_none_of_the_three(tmp_path):
    """Else the only one that can be loaded would go, and the job go back to nothing."""
    whole, *damaged = (save(tmp_path, version) for version in (1, 2, 3))
    newest = write(tmp_path, 4, frozenset(damaged))
    assert {str(path) for path in tmp_path.iterdir()} == {whole, newest}


def test_one_that_cannot_be_dropped_keeps_no_other_one(tmp_path, monkeypatch):
    older, *kept = (save(tmp_path, version) for version in (2, 3, 4))
    oldest, stays = (str(shutil.copytree(older, tmp_path / name_of(version, MINE))) for version in (0, 1))
    failed = trouble(monkeypatch, "rm", OSError(errno.EACCES, os.strerror(errno.EACCES)), Path(stays).name)
    newest = write(tmp_path, 5)
    assert failed
    assert {str(path) for path in tmp_path.iterdir()} == {stays, *kept, newest}, f"{oldest} is gone"
