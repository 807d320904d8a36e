"""What travels on the data plane: a fixed binary header, a small JSON part, then raw bytes. Little endian.

    PUSH   worker -> server    gradients of version v        VALUE  server -> worker    parameters at version v
    INIT   chief -> server     first values                  PULL   worker -> server    asks for VALUE
    SUBSCRIBE  shadow -> server  VALUE now and at each update
    SNAPSHOT, RECORD, HANDOVER   old primary -> new owner (the follow stream)
    NOTICE     anyone switched -> its peers: configuration (term, number) is decided
    APPLIED    new owner -> old primary: a RECORD is applied, its memory may be written to
    GOODBYE    worker -> server: its part in the job is over in order, the connection's end means nothing
    REFUSED    the receiver of a stale or wrong frame -> its sender
    HELLO, ACCEPTED              first on every connection
    JOIN                         before it on each socket, where a connection has several

The header's (term, number) is the sender's configuration. `at`, in the meta of any kind, says where in shared memory
the payload lies that does not travel (`shm`). Otherwise `meta` holds, by kind:

    JOIN      connection: a name, part: the socket's number in it, of: how many it has
    HELLO     node, role, lane ("exchange" | "follow")
    PUSH      runs: [[first, count], ...] the payload's blocks; absent: runs that this worker pushes nothing for;
              slice: [epoch, step, exchange, low, high] or null (static data); empty: true where the rank's slice is
              empty (agrees with whatever the others push); encoded: how the gradients of float32 are compressed (type,
              its argument) and nbytes, of each run; rows: [how many rows of each run the payload has: their numbers
              in the tensor as int64, ascending, then their values]; hyper: {...} from the chief only. async and ssp:
              batch: [origin, number], under which each block takes it once (number: batches of the origin times
              exchanges, plus this exchange); hyper from every worker; the header's version is the worker's own count;
              the blocks of a frame are of one kvstore, and so are those of a PULL
    VALUE     runs; rows: as in the PUSH, where all else is as at the version before. async and ssp: the header's
              version is that of the PUSH, plus 1, or of the PULL; updates: the highest count of optimizer updates
              among these blocks
    INIT      runs
    PULL      runs; states: true asks for SNAPSHOTs with the optimizer's state instead of VALUE
    SNAPSHOT  runs (one run), state: [names of state arrays in the payload after the values], counts: per block; to a
              worker also dtypes: of the state arrays; from the chief, to load state: the payload has no values. async
              and ssp: applied: {origin: [number of the last batch, per block; -1: none]}
    RECORD    runs (one run), hyper; payload is the aggregated gradient, normalised; count increments are implied.
              slot: where it lies in the new owner's memory, for its APPLIED. absent: true where nobody pushed the keys
              (no payload). rows: as in the PUSH. No runs: the stream has caught up, or (pause: true) gives up until the
              switch. async and ssp: batch, as in the PUSH
    APPLIED   slot: as in the RECORD
    HANDOVER  runs: theirs now, at header.version; empty: true where first values have not come
    REFUSED   reason (Reason), detail, configuration: [term, number]
"""

import hmac
import json
import struct
import zlib
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.token import TOKEN_BYTES

PROTOCOL_VERSION = 1
MAX_META_BYTES = 16 << 20
_HEADER = struct.Struct(f"<4sHH{TOKEN_BYTES}sQQQIIQ")
_PREFIX = struct.Struct(f"<4sHH{TOKEN_BYTES}s")  # of the header: what is judged before anything else of it
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_MAGIC = b"ELPS"


class Kind(IntEnum):
    """What a frame says."""

    HELLO = 1
    ACCEPTED = 2
    REFUSED = 3
    NOTICE = 4
    INIT = 5
    PULL = 6
    PUSH = 7
    VALUE = 8
    SUBSCRIBE = 9
    SNAPSHOT = 10
    RECORD = 11
    HANDOVER = 12
    GOODBYE = 13
    APPLIED = 14
    JOIN = 15


class Reason(StrEnum):
    """Why a frame is refused."""

    TOKEN = "token"
    STALE = "stale"  # from an old configuration; the refusal names the current one
    UNKNOWN = "unknown"  # the sender is not in the configuration
    MISMATCH = "mismatch"  # some workers pushed a key and others did not
    MALFORMED = "malformed"


@dataclass(slots=True)
class Frame:
    """One message without its payload.

    Attributes:
        kind: what it says.
        configuration: the sender's (term, number).
        version: of the blocks concerned (see the table above).
        samples: a push's sample count n.
        meta: the small JSON part.
        payload_bytes: length of the raw bytes that follow; set by `send`.
    """

    kind: Kind
    configuration: ConfigId = NO_CONFIGURATION
    version: int = 0
    samples: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    payload_bytes: int = 0

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The payload's blocks."""
        return [(first, count) for first, count in self.meta.get("runs", ())]


def encode(frame: Frame, token: bytes) -> bytes:
    """Header and meta of a frame whose `payload_bytes` is set."""
    meta = json.dumps(frame.meta, separators=(",", ":")).encode() if frame.meta else b""
    header = _HEADER.pack(
        _MAGIC,
        PROTOCOL_VERSION,
        frame.kind,
        token,
        frame.configuration.term,
        frame.configuration.number,
        frame.version,
        frame.samples,
        len(meta),
        frame.payload_bytes,
    )
    return header + _CHECKSUM.pack(zlib.crc32(header)) + meta


def decode_header(data: bytes | bytearray | memoryview, token: bytes) -> tuple[Frame, int]:
    """The frame without its meta, and the meta's length in bytes: nothing of a stranger's header is believed.

    Raises:
        ProtocolError: not ours, damaged, of another protocol version, or without the job's token.
    """
    header = bytes(data[: _HEADER.size])
    magic, protocol, kind, shown = _PREFIX.unpack_from(header)
    if magic != _MAGIC:
        raise ProtocolError("not a frame of this protocol: wrong magic")
    if protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            f"peer speaks data-plane protocol {protocol}, this node {PROTOCOL_VERSION}: use one release"
        )
    if not hmac.compare_digest(shown, token):
        raise ProtocolError("frame without this job's token")
    if _CHECKSUM.unpack(data[_HEADER.size : HEADER_BYTES])[0] != zlib.crc32(header):
        raise ProtocolError("damaged frame header: checksum differs")
    *_, term, number, version, samples, meta_bytes, payload_bytes = _HEADER.unpack(header)
    if meta_bytes > MAX_META_BYTES:
        raise ProtocolError(f"frame with {meta_bytes} bytes of meta, more than {MAX_META_BYTES}")
    try:
        known = Kind(kind)
    except ValueError as error:
        raise ProtocolError(f"frame of unknown kind {kind}") from error
    return Frame(known, ConfigId(term, number), version, samples, {}, payload_bytes), meta_bytes


def decode_meta(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The JSON part.

    Raises:
        ProtocolError: not a JSON object.
    """
    try:
        meta = json.loads(bytes(data)) if data else {}
    except (ValueError, RecursionError) as error:  # no JSON, or JSON as deep as no frame's
        raise ProtocolError(f"frame with broken meta: {error}") from error
    if not isinstance(meta, dict):
        raise ProtocolError("frame whose meta is no object")
    return meta
