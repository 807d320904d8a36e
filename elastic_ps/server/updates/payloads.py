"""This module decodes pushes whose payload is not the plain gradient of its blocks: compressed, or of some rows."""

import numpy as np

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.segments import Raw
from elastic_ps.core.sparse_rows import payload_bytes, received
from elastic_ps.optimizers.gradient_sum import Contribution
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.meta_parts import Encoded


def sizes(frame: Frame, store: ServerBlockStore) -> list[int] | None:
    """Return the bytes that each run of a frame must bring; None: those of its blocks. Called under the lock.

    Raises:
        ProtocolError: the frame says what cannot be.
    """
    if not isinstance(frame.meta, PushMeta):
        return None
    push = frame.meta
    if push.encoded is not None:
        return _encoded(push, push.encoded, store)
    return payload_bytes(store.model, push.runs, push.rows) if push.rows is not None else None


def decoded(frame: Frame, data: list[Raw], store: ServerBlockStore) -> list[Contribution]:
    """Return what the payload of a frame stands for, by run.

    Args:
        frame: without its payload.
        data: the payload, by run.
        store: the store that holds the blocks.

    Raises:
        ProtocolError: no correct peer sends it.
    """
    push = frame.meta if isinstance(frame.meta, PushMeta) else None
    if push is not None and push.encoded is not None:
        return list(_decoded(push, push.encoded, data, store))
    if push is not None and push.rows is not None:
        return list(received(store.model, push.runs, push.rows, data))
    return list(data)


def _encoded(push: PushMeta, encoded: Encoded, store: ServerBlockStore) -> list[int]:
    if len(encoded.nbytes) != len(push.runs):
        raise ProtocolError(f"a PUSH of {len(push.runs)} runs has {len(encoded.nbytes)} encoded payloads")
    for run, size in zip(push.runs, encoded.nbytes, strict=True):
        plain = all(store.treatment(block).dtype == np.float32 for block in range(run[0], sum(run)))
        most = encoded.compression.encoded_bytes(store.span([run]) // 4)
        if not plain or size > most:
            raise ProtocolError(f"a PUSH of blocks {run} cannot be encoded in {size} bytes")
    return list(encoded.nbytes)


def _decoded(push: PushMeta, encoded: Encoded, data: list[Raw], store: ServerBlockStore) -> list[Raw]:
    found = [np.empty(store.span([run]) // 4, dtype=np.float32) for run in push.runs]
    for part, out in zip(data, found, strict=True):
        encoded.compression.decode(part, out)
    return [out.view(np.uint8) for out in found]
