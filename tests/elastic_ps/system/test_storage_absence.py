"""Whether a checkpoint is there: only a storage that says so lacks it."""

import errno
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_ps.core.errors import StorageError
from elastic_ps.system import storage
from elastic_ps.system.storage import MANIFEST
from tests.world.kernel.storage import Storage

TROUBLE = [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES]


class SmbError(OSError):
    """As SMB's are: no class of its own for each number."""

    errno = errno.ENOENT


def fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def info(*_path: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(storage.LocalFileSystem, "info", info)


@pytest.mark.parametrize("number", TROUBLE, ids=errno.errorcode.get)
def test_a_manifest_that_cannot_be_looked_at_is_no_absence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / MANIFEST).write_text("{}")
    fails(monkeypatch, OSError(number, os.strerror(number)))
    with pytest.raises(StorageError, match=os.strerror(number)):
        storage.is_complete(str(tmp_path))
    with pytest.raises(StorageError, match=os.strerror(number)):
        storage.candidates(str(tmp_path))


@pytest.mark.parametrize("error", [FileNotFoundError(), NotADirectoryError(), SmbError()], ids=repr)
def test_one_that_the_storage_lacks_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    fails(monkeypatch, error)
    assert not storage.is_complete(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        storage.size(str(tmp_path))


def test_what_is_gone_already_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SMB it was an error that no caller expects, and the other old checkpoints stayed."""

    def gone(*_path: object, **_named: object) -> None:
        raise SmbError

    (tmp_path / "version-1").mkdir()
    monkeypatch.setattr(storage.LocalFileSystem, "rm_file", gone)
    storage.remove(str(tmp_path / "version-1"))
    assert not (tmp_path / "version-1").exists()
    monkeypatch.setattr(storage.LocalFileSystem, "rm", gone)
    storage.remove(str(tmp_path / "version-1"))


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, int]]]:
    """A server of HTTP, and the status of its next answers."""
    told = {"status": 200}

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(told["status"])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_words: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/checkpoint", told
        server.shutdown()
        thread.join()


def test_https_file_system_tells_absence_from_a_server_in_trouble(served: tuple[str, dict[str, int]]) -> None:
    url, told = served
    assert storage.is_complete(url)
    for status in (404, 410):
        told["status"] = status
        assert not storage.is_complete(url)
        with pytest.raises(FileNotFoundError):
            storage.read(f"{url}/{MANIFEST}")
    for status in (403, 500, 503):
        told["status"] = status
        with pytest.raises(StorageError):
            storage.is_complete(url)
        with pytest.raises(StorageError):
            storage.read(f"{url}/{MANIFEST}")


def test_a_server_that_is_not_reached_lacks_nothing() -> None:
    with pytest.raises(StorageError):
        storage.is_complete("http://127.0.0.1:9/checkpoint")


def test_the_worlds_storage_hides_errors_where_real_ones_do() -> None:
    files = Storage()
    files.makedirs("/a")  # type: ignore[attr-defined]
    assert files.exists("/a")
    files.failing = errno.ESTALE
    assert not files.exists("/a")
