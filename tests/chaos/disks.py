"""Small disks of a job's own: one that can be full, and one that can lose power. They end with the job's room."""

import fcntl
import os
import shutil
import struct
import subprocess
from itertools import count
from pathlib import Path

_SIZE = 64 << 20
_SHUT_DOWN, _LOG_UNFLUSHED = 0x8004587D, 2  # FS_IOC_SHUTDOWN of the kernel, and its flag: not even the log is written
_SECONDS = 60.0


def small(path: Path) -> None:
    """Put a small disk at a folder."""
    _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(path))


class PoweredDisk:
    """A `PoweredDisk` is a file with ext4 in it, which is what a disk's plates are: what has not got there is lost.

    Args:
        path: folder at which it is.
        images: folder of such files.
    """

    def __init__(self, path: Path, images: Path):
        self._path, self._images = path, images
        self._numbers = count()
        self._image = self._next()
        with self._image.open("wb") as file:
            os.truncate(file.fileno(), _SIZE)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self._mount()

    def sync(self) -> None:
        """Bring all that was written to the disk."""
        _run("sync", "--file-system", str(self._path))

    def lose_power(self) -> None:
        """Stop the file system where it is, and begin again with what is on the disk, as a machine that starts does.

        Who has files open there goes on with errors.
        """
        folder = os.open(self._path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUT_DOWN, struct.pack("I", _LOG_UNFLUSHED))
        finally:
            os.close(folder)
        _run("umount", "--lazy", str(self._path))
        left, self._image = self._image, self._next()
        shutil.copyfile(left, self._image)  # the old file system lives on for those who have files open
        left.unlink()
        self._mount()

    def _next(self) -> Path:
        return self._images / f"disk-{next(self._numbers)}"

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_SECONDS)
