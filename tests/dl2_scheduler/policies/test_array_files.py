"""Files of arrays: written whole or not at all, and an error names the file."""

import errno

import numpy as np
import pytest

from dl2_scheduler.policies.learnt.array_files import read_arrays, write_arrays


def test_a_file_that_cannot_be_written_stays_as_it_was_and_is_named(tmp_path, monkeypatch):
    path = tmp_path / "some.npz"
    write_arrays(path, {"one": np.ones(2)})

    def full(file, **_):
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_arrays(path, {"one": np.zeros(2)})
    assert raised.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert read_arrays(path)["one"].tolist() == [1.0, 1.0]
