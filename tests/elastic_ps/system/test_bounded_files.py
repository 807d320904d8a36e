"""Files given by path are read within bounds."""

import os
from pathlib import Path

import pytest

from elastic_ps.system.bounded_files import UnreadableFile, read_bytes, read_text


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\rthree\n")
    assert read_text(tmp_path / "a", 15) == "one\ntwo\nthree\n"


def test_one_that_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    with pytest.raises(UnreadableFile, match=r"^longer than 4 bytes: give a smaller file$"):
        read_bytes(tmp_path / "a", 4)


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path):
        with pytest.raises(UnreadableFile, match=r"^not a file of data: give the path of one$"):
            read_bytes(path)


def test_what_is_no_path() -> None:
    with pytest.raises(UnreadableFile, match="no path"):
        read_bytes("a\0b")
