"""Folders of checkpoints are named after the version in them and the identity of the job that wrote them."""

import re


def name_of(version: int, identity: str) -> str:
    """Return the name of the folder of a job's checkpoint."""
    return f"version-{version:010d}-{identity}"


def is_of(url: str, identity: str) -> bool:
    """Return whether a folder's name is that of a checkpoint of a job; identity "": of before jobs had one."""
    suffix = f"-{re.escape(identity)}" if identity else ""
    return re.fullmatch(rf"version-\d+{suffix}", url.rstrip("/").rpartition("/")[2]) is not None
