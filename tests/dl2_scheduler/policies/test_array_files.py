"""Files of arrays: written whole or not at all, and an error names the file."""

import errno
import os
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.plain import read_plain, write_plain
from dl2_scheduler.policies.learnt.array_files import check_arrays, read_arrays, write_arrays
from tests.paths import ROOT

LARGER = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from dl2_scheduler.policies.learnt.array_files import write_arrays
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    write_arrays(Path(sys.argv[1]), {"one": np.zeros(100_000)})
except OSError as error:
    print(f"{error.strerror}: {error.filename}")
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_takes_anothers_place_when_it_lies_on_the_disk(tmp_path, monkeypatch, fails):
    path, synced = tmp_path / "file", []
    path.write_bytes(b"before")

    def fsync(descriptor):
        synced.append((os.fstat(descriptor).st_size, path.read_bytes()))
        if fails:
            raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="the disk fails") if fails else nullcontext():
        write_plain({"updates": 7}, path)
    assert synced == [(synced[0][0], b"before")]
    assert synced[0][0] > 100
    assert (path.read_bytes() == b"before") == fails
    assert fails or read_plain(path) == {"updates": 7}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_stays_as_it_was_and_is_named(tmp_path, monkeypatch):
    path = tmp_path / "some.npz"
    write_arrays(path, {"one": np.ones(2)})

    def full(descriptor):
        os.ftruncate(descriptor, 10)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_arrays(path, {"one": np.zeros(2)})
    assert raised.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert read_arrays(path)["one"].tolist() == [1.0, 1.0]


def test_of_a_file_that_may_grow_no_further_one_error_is_told_and_no_traceback(tmp_path):
    path = tmp_path / "some.npz"
    command = [sys.executable, "-c", LARGER, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, f"File too large: {path}\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("weight", "said"), [(np.inf, "not finite"), (1e30, "above 1e\\+09"), (-1e30, "above 1e\\+09")]
)
def test_weights_that_nobody_has_learnt_are_refused(weight, said):
    arrays = {"one": np.array([1.0, weight], dtype=np.float32)}
    with pytest.raises(BadInput, match=said):
        check_arrays(arrays, {"one": (2,)})
