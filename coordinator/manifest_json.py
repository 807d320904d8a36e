"""This module puts a manifest into the JSON of `manifest.json`, and back.

    {"format": 3, "identity": "...", "written": unix seconds, "version": V, "seed": ..., "block_bytes": ...,
     "tensors": [...], "optimizers": [...], "data": {...}, "local_update": false, "configuration": {...}, "book": null,
     "applied": {}, "blocks": {"0": {"file": "s0.bin", "crc32": ..., ...}}}

In an async or ssp job the version is only a number that counts, `book` says which batches are done, and `applied` which
blocks hold some of those that are not: by origin [first block, count, number of the last batch]. Manifests of before
jobs had an identity have none, nor `written` and `applied`; they are nobody's, and are read where they are named.

Entries of `blocks` are the servers' own (`elastic_ps/server/checkpoints/files.py`).
"""

from collections.abc import Mapping
from typing import Any

from coordinator.core.batches.async_batches import Book
from coordinator.core.checkpoints.manifest import Manifest, Stretch
from coordinator.dataclass_json import decode, encode
from elastic_ps.core.configuration import Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import CheckpointError, ConfigurationError
from elastic_ps.core.model import Model, Tensor

FORMAT = 3

_PLAIN: dict[str, Any] = {
    "version": int,
    "seed": int,
    "optimizers": tuple[str, ...],
    "data": DataSpec | None,
    "local_update": bool,
    "configuration": Configuration,
    "book": Book | None,
    "identity": str,
    "written": float,
    "applied": Mapping[NodeId, tuple[Stretch, ...]],
}
_LATER = frozenset({"identity", "written", "applied"})  # than the first manifests of this format


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as what `manifest.json` holds."""
    value = {name: encode(getattr(manifest, name)) for name in _PLAIN}
    return {
        "format": FORMAT,
        **value,
        "block_bytes": manifest.model.block_bytes,
        "tensors": encode(manifest.model.tensors),
        "blocks": {str(block): dict(entry) for block, entry in sorted(manifest.blocks.items())},
    }


def manifest_from_json(value: Mapping[str, Any]) -> Manifest:
    """Return the manifest that `manifest.json` holds.

    Raises:
        CheckpointError: it is not a manifest of this format.
    """
    try:
        if value["format"] != FORMAT:
            raise CheckpointError(f"a manifest of format {value['format']}, this program reads {FORMAT}")
        model = Model(decode(tuple[Tensor, ...], value["tensors"]), int(value["block_bytes"]))
        plain = {
            name: decode(kind, value[name]) for name, kind in _PLAIN.items() if name in value or name not in _LATER
        }
        blocks = {int(block): entry for block, entry in value["blocks"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, ConfigurationError) as error:
        raise CheckpointError(f"not a manifest: {error!r}") from error
    if sorted(blocks) != list(range(len(model.blocks))):
        raise CheckpointError(f"{len(blocks)} blocks, but its tensors have {len(model.blocks)}")
    return Manifest(model=model, blocks=blocks, **plain)
