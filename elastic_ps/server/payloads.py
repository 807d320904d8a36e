"""Pushes whose payload is not the plain gradient of its blocks: compressed ones, and those of some rows."""

from typing import Any

import numpy as np

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.rows import payload_bytes, received
from elastic_ps.core.segments import Raw
from elastic_ps.server.contributions import Contribution
from elastic_ps.server.store import Store
from elastic_ps.transport.frames import Frame


def sizes(frame: Frame, store: Store) -> list[int] | None:
    """Bytes of each run of a frame; None: they are those of its blocks. Called under the lock.

    Raises:
        ProtocolError: the frame says what cannot be.
    """
    if "encoded" in frame.meta:
        return _encoded(frame, store)
    return payload_bytes(store.model, frame.runs, frame.meta["rows"]) if "rows" in frame.meta else None


def decoded(frame: Frame, data: list[Raw], store: Store) -> list[Contribution]:
    """What the payload of a frame, of each run, stands for.

    Raises:
        ProtocolError: no correct peer sends it.
    """
    if "encoded" in frame.meta:
        return list(_decoded(frame, data, store))
    if "rows" in frame.meta:
        return list(received(store.model, frame.runs, frame.meta["rows"], data))
    return list(data)


def _encoded(frame: Frame, store: Store) -> list[int]:
    told = frame.meta["encoded"]
    compression, found = _compression(told), told.get("nbytes")
    if not isinstance(found, list) or len(found) != len(frame.runs):
        raise ProtocolError(f"{frame.kind.name} of {len(frame.runs)} runs, encoded in {str(found)[:200]}")
    for run, size in zip(frame.runs, found, strict=True):
        plain = all(store.treatment(block).dtype == np.float32 for block in range(run[0], sum(run)))
        most = compression.encoded_bytes(store.span([run]) // 4)
        if not plain or not isinstance(size, int) or not 0 <= size <= most:
            raise ProtocolError(f"{frame.kind.name} of blocks {run}, encoded in {size} bytes")
    return found


def _decoded(frame: Frame, data: list[Raw], store: Store) -> list[Raw]:
    compression = _compression(frame.meta["encoded"])
    found = [np.empty(store.span([run]) // 4, dtype=np.float32) for run in frame.runs]
    for part, out in zip(data, found, strict=True):
        compression.decode(part, out)
    return [out.view(np.uint8) for out in found]


def _compression(told: Any) -> Compression:
    if not isinstance(told, dict):
        raise ProtocolError(f"a gradient that is encoded by {str(told)[:200]}")
    return Compression.told({name: value for name, value in told.items() if name != "nbytes"})
