"""This module keeps a job's folder: its name, its secret, and who runs it (docs/concepts/architecture.md)."""

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.core.errors import ConfigurationError, NotNow
from elastic_ps.system.file_lock import try_lock
from elastic_ps.system.passing_errors import MACHINE_LACKS
from elastic_ps.system.process.proc_stat import birth_of
from elastic_ps.system.state_folder import number_aside
from elastic_ps.system.storage import local_folder

_RECORD = "job.json"
_ROOM = 4096  # bytes that the record takes of the disk from the start, so that a job's end finds room
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def default_name(script: str) -> str:
    """Return a new job's name: that of the script, with a suffix that keeps two runs apart."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(script).stem).strip("-._") or "job"
    return f"{stem[:48]}-{secrets.token_hex(2)}"


class JobFolder:
    """A `JobFolder` is the folder of one running job; its launcher holds it until `release`.

    A folder of the same name that an ended job has left is kept beside it as NAME~1, NAME~2 and so on.

    Args:
        name: of the job.
        root: usually `jobs_folder()`.
        identity: of the training run, which may be that of jobs before.

    Raises:
        ConfigurationError: not a name, the job runs already, or there can be no folder there.
        NotNow: there can be none at present, as where the disk is full.
    """

    def __init__(self, name: str, root: Path, identity: str = ""):
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"--name {name!r}: a job's name has up to 63 letters, digits, '.', '_' and '-', "
                "and starts with a letter or digit"
            )
        self.name = name
        self.path = root / name
        self._retired: Path | None = None  # where the folder of the job before is now
        try:
            self._lock = self._make(root)
        except OSError as error:
            kind = NotNow if error.errno in MACHINE_LACKS else ConfigurationError
            raise kind(
                f"the job's folder {self.path} cannot be made: {error.strerror}; "
                "have XDG_STATE_HOME name a folder that you may write to, with room"
            ) from error
        self._record: dict[str, Any] = {
            "name": name,
            "identity": identity,
            "folder": str(self.path),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "birth": birth_of(os.getpid()),
            "coordinator": "",
            "coordinator_pid": 0,
            "coordinator_birth": None,
            "started": time.time(),
        }

    @property
    def logs(self) -> Path:
        """The folder of log files of the job's processes."""
        return self.path / "logs"

    @property
    def token_file(self) -> Path:
        """The file of the job's secret as hex digits, for its owner only."""
        return self.path / "token"

    def moved(self, url: str) -> str:
        """Return where a URL leads to now: what was in the folder of the job before has moved aside with it."""
        path = local_folder(url) if url and self._retired is not None else None
        if self._retired is None or path is None or not path.resolve().is_relative_to(self.path.resolve()):
            return url
        return str(self._retired / path.resolve().relative_to(self.path.resolve()))

    def listening(self, coordinator: str, pid: int) -> None:
        """Write where the job's coordinator listens (host:port), and its process: operators find the job now."""
        self._record.update(coordinator=coordinator, coordinator_pid=pid, coordinator_birth=birth_of(pid))
        _write_record(self.path, self._record)

    def over(self, status: int, reason: str) -> None:
        """Write how the job ends: the launcher's exit status, and why. Its coordinator need not tell any more."""
        self._record.update(status=status, reason=reason)
        self._write_end()

    def ended(self) -> None:
        """Write that all its processes have ended."""
        self._record.update(ended=time.time())
        self._write_end()

    def _write_end(self) -> None:
        """Write the record, if that can be: else the job ends all the same, as its launcher has processes to end."""
        with contextlib.suppress(OSError):
            _write_record(self.path, self._record)

    def release(self) -> None:
        """Let the name go."""
        os.close(self._lock)

    def _make(self, root: Path) -> int:
        """Create the folder, with what its processes need; return its lock."""
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = self._take()
        try:
            self.logs.mkdir()
            self._write_token()
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)  # else each further try would move it aside
            os.close(lock)
            raise
        return lock

    def _take(self) -> int:
        """Create the folder and lock it, so that a launcher's death, however it comes, frees the name."""
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            lock = self._try_lock()
            self._retire()
            os.close(lock)
            try:
                self.path.mkdir(mode=0o700)
            except FileExistsError:
                raise self._refusal() from None
        return self._try_lock()

    def _try_lock(self) -> int:
        lock = try_lock(self.path / "lock")
        if lock is None:
            raise self._refusal()
        return lock

    def _refusal(self) -> ConfigurationError:
        return ConfigurationError(
            f"a job named {self.name} runs already (folder {self.path}): choose another --name, "
            f"or end that one first with `elasticctl stop {self.name}`"
        )

    def _retire(self) -> None:
        """Give the folder of the ended job a name that is later than those of all before, in its record too."""
        number = 1 + max(map(number_aside, self.path.parent.glob(f"{self.name}~*")), default=0)
        kept = self.path.with_name(f"{self.name}~{number}")
        self.path.rename(kept)
        self._retired = kept
        with contextlib.suppress(OSError, ValueError):  # it never came to write one
            record = json.loads((kept / _RECORD).read_text())
            _write_record(kept, {**record, "name": kept.name, "folder": str(kept)})

    def _write_token(self) -> None:
        descriptor = os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(TOKEN_BYTES) + "\n")


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Replace job.json at once or not at all. Where the disk is full the file is written over: it has room for it."""
    draft, path = folder / f"{_RECORD}.tmp", folder / _RECORD
    text = f"{json.dumps(record, indent=2)}\n".ljust(_ROOM)
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not path.exists():
            raise
        with path.open("r+b", buffering=0) as file:
            file.truncate(file.write(text.encode()))
