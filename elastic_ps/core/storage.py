"""Where checkpoints lie: a folder of `version-...` folders, by any fsspec URL (`coordinator.checkpoints`)."""

import fsspec

MANIFEST = "manifest.json"
"""The file that makes a folder a checkpoint; written last."""


def check_protocol(url: str) -> None:
    """Do nothing where programs for a URL's storage are installed; nothing is opened.

    Raises:
        ValueError, ImportError: there are none, with what to do.
    """
    *outer, last = url.split("::")
    for protocol in [*(link.partition("://")[0] for link in outer), fsspec.core.split_protocol(last)[0] or "file"]:
        fsspec.get_filesystem_class(protocol)


def candidates(root: str) -> list[str]:
    """URLs of `root`, if it is a checkpoint, else of the folders under it that may be one, newest first.

    Raises:
        OSError, ValueError, ImportError: the storage cannot be read.
    """
    root = root.rstrip("/")
    system, path = fsspec.core.url_to_fs(root)
    if system.exists(f"{path}/{MANIFEST}"):
        return [root]
    names = (str(entry).rstrip("/").rpartition("/")[2] for entry in system.ls(path, detail=False))
    return [f"{root}/{name}" for name in sorted(names, reverse=True) if name.startswith("version-")]


def is_complete(url: str) -> bool:
    """Whether a folder has a manifest. Raises as `candidates`."""
    system, path = fsspec.core.url_to_fs(url)
    return bool(system.exists(f"{path}/{MANIFEST}"))
