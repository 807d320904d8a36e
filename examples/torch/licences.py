"""This module reads the texts that every Debian has: the licences of its packages, some 250 kB of English."""

from pathlib import Path

FOLDER = Path("/usr/share/common-licenses")


def texts(folder: Path = FOLDER) -> dict[str, str]:
    """Return the licences by name, each once; they are the same in every process of a job.

    Raises:
        SystemExit: this machine has none, as it is no Debian; the message says what to do.
    """
    found = {path.name: path.read_text("latin-1") for path in sorted(folder.glob("*")) if not path.is_symlink()}
    if len(found) < 2:
        raise SystemExit(
            f"{folder} has no licences: it is part of Debian and its derivatives; take other texts by --texts FOLDER"
        )
    return found
