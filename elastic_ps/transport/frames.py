"""This module encodes what travels on the data plane: a fixed binary header, a small JSON part, then raw bytes.

    PUSH   worker -> server    gradients of version v        VALUE  server -> worker    parameters at version v
    INIT   chief -> server     first values                  PULL   worker -> server    asks for VALUE
    SUBSCRIBE  shadow -> server  VALUE now and at each update
    SNAPSHOT, RECORD, HANDOVER   old primary -> new owner (the follow stream)
    NOTICE     anyone switched -> its peers: configuration (term, number) is decided
    FOLLOWED   follower -> owner       what it holds of a RECORD's or SNAPSHOT's blocks: their version may be told;
                                       the memory of RECORDs before may be written to
    GOODBYE    worker -> server: its part in the job is over in order, the connection's end means nothing
    REFUSED    the receiver of a stale or wrong frame -> its sender
    HELLO, ACCEPTED              first on every connection
    JOIN                         before it on each socket, where a connection has several
    PING, PONG                   any time after them: is anybody there; answered by whoever receives (`send_queue`)

Before the first frame both ends of a socket prove that they know the job's token (`greeting`); no frame shows it.
The header's (term, number) is the sender's configuration. The JSON part, the meta, has a class a kind (`frame_metas`);
beside these names "at", in the meta of any kind, says where in shared memory the payload lies that does not travel
(`shm_transport`).
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple, NoReturn, TypeVar, get_type_hints

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import METAS, Meta, OfBlocks
from elastic_ps.transport.greeting import MAGIC, OTHER, PROTOCOL_VERSION
from elastic_ps.transport.json_checks import MOST, Check, short
from elastic_ps.transport.meta_parts import SHARED_RANGES, Encoded, SharedRange

MAX_META_BYTES = 16 << 20
_HEADER = struct.Struct("<4sHHQQQIIQ")
_CHECKSUM = struct.Struct("<I")
_WHOLE_HEADER = struct.Struct(_HEADER.format + "I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

_OfKind = TypeVar("_OfKind", bound=Meta)


@dataclass(slots=True)
class Frame:
    """A `Frame` is one message without its payload.

    Attributes:
        meta: what it says; its class gives the kind.
        configuration: the sender's (term, number).
        version: of the blocks concerned (see the table above).
        samples: a push's sample count n.
        payload_bytes: length of the raw bytes that follow; set by `send`.
        at: where in shared memory the payload lies; empty: it travels.
    """

    meta: Meta
    configuration: ConfigId = NO_CONFIGURATION
    version: int = 0
    samples: int = 0
    payload_bytes: int = 0
    at: tuple[SharedRange, ...] = ()

    @property
    def kind(self) -> Kind:
        """Return what the frame says."""
        return self.meta.kind

    @property
    def runs(self) -> list[Run]:
        """The payload's blocks."""
        return list(self.meta.runs) if isinstance(self.meta, OfBlocks) else []

    def of(self, meta: type[_OfKind]) -> _OfKind:
        """Return the meta, which must be of this class.

        Raises:
            ProtocolError: the frame is of another kind.
        """
        if not isinstance(self.meta, meta):
            raise ProtocolError(f"{self.kind.name} has come where {meta.kind.name} is expected")
        return self.meta


class Header(NamedTuple):
    """A `Header` is what the fixed part of a frame says."""

    kind: Kind
    configuration: ConfigId
    version: int
    samples: int
    meta_bytes: int
    payload_bytes: int


def encode(frame: Frame) -> bytes:
    """Encode header and meta of a frame whose `payload_bytes` is set.

    Raises:
        ProtocolError: no peer would take it.
    """
    meta = _encode_meta(frame.meta, frame.at)
    header = _HEADER.pack(
        MAGIC,
        PROTOCOL_VERSION,
        frame.kind,
        frame.configuration.term,
        frame.configuration.number,
        frame.version,
        frame.samples,
        len(meta),
        frame.payload_bytes,
    )
    return header + _CHECKSUM.pack(zlib.crc32(header)) + meta


def decode_header(data: bytes | bytearray | memoryview) -> Header:
    """Decode the fixed part of a frame.

    Raises:
        ProtocolError: not ours, damaged, or of another protocol version.
    """
    whole = _WHOLE_HEADER.unpack_from(data)
    magic, protocol, kind, term, number, version, samples, meta_bytes, payload_bytes, checksum = whole
    if magic != MAGIC:
        raise ProtocolError(f"a frame begins with {magic!r}, not {MAGIC!r}: {OTHER}")
    if protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            f"peer speaks data-plane protocol {protocol}, this node {PROTOCOL_VERSION}: use one release"
        )
    if checksum != zlib.crc32(data[: _HEADER.size]):
        raise ProtocolError("a frame header is damaged: its checksum differs")
    if meta_bytes > MAX_META_BYTES:
        raise ProtocolError(f"a frame has {meta_bytes} bytes of meta, more than {MAX_META_BYTES}")
    if version > MOST:
        raise ProtocolError(f"a frame is of version {version}, more than {MOST}")
    known = _KINDS.get(kind)
    if known is None:
        raise ProtocolError(f"a frame is of unknown kind {kind}")
    return Header(known, ConfigId(term, number), version, samples, meta_bytes, payload_bytes)


def decode(header: Header, data: bytes | bytearray | memoryview) -> Frame:
    """Decode and check the JSON part, and put the frame together.

    Raises:
        ProtocolError: no correct peer sends it.
    """
    meta, at = _decode_meta(header.kind, data)
    return Frame(meta, header.configuration, header.version, header.samples, header.payload_bytes, at)


# ---- the JSON part ---------------------------------------------------------------------------------------------------


def _fields(meta: type[Meta]) -> Mapping[str, tuple[Check, Any]]:
    """Return each field's check and default of a class."""
    hints = get_type_hints(meta, include_extras=True)
    return {found.name: (hints[found.name].__metadata__[0], found.default) for found in fields(meta)}


_KINDS = {int(kind): kind for kind in Kind}
_FIELDS = {kind: _fields(meta) for kind, meta in METAS.items()}
_DEFAULTS = {kind: tuple((name, default) for name, (_, default) in found.items()) for kind, found in _FIELDS.items()}
_NEEDED = {
    kind: tuple(name for name, default in defaults if default is MISSING) for kind, defaults in _DEFAULTS.items()
}
_EMPTY = {kind: meta() for kind, meta in METAS.items() if not _NEEDED[kind] and not meta().fault}
"""What frames without a JSON part say: signs of life, for one, are most of what idle nodes send."""


def _encode_meta(meta: Meta, at: tuple[SharedRange, ...]) -> bytes:
    told: dict[str, Any] = {"at": at} if at else {}
    for name, default in _DEFAULTS[meta.kind]:
        value = getattr(meta, name)
        if value != default:
            told[name] = value
    data = _WRITER.encode(told).encode() if told else b""
    if len(data) > MAX_META_BYTES:  # nobody would take it, however often it was sent
        most = max(told, key=lambda name: len(_WRITER.encode(told[name])))
        raise ProtocolError(
            f"a {meta.kind.name} cannot be sent: its meta of {len(data)} bytes, most of them {most!r}, exceeds the "
            f"{MAX_META_BYTES} that a peer takes"
        )
    return data


def _object(value: Hyper | Encoded) -> dict[str, Any]:
    return value.to_dict()


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


_WRITER = json.JSONEncoder(separators=(",", ":"), default=_object)
_READER = json.JSONDecoder(parse_constant=_not_finite)
"""`json.dumps` and `json.loads` make such objects anew at each call that has options."""


def _decode_meta(kind: Kind, data: bytes | bytearray | memoryview) -> tuple[Meta, tuple[SharedRange, ...]]:
    if not data and kind in _EMPTY:
        return _EMPTY[kind], ()
    try:
        told = _READER.decode(str(data, "utf-8")) if data else {}
    except (ValueError, RecursionError) as error:  # no JSON, or JSON as deep as no frame's
        raise ProtocolError(f"{kind.name} with broken meta: {error}") from error
    if not isinstance(told, dict):
        raise ProtocolError(f"{kind.name} whose meta is {short(told)}, no JSON object: {OTHER}")
    at = _checked(kind, "at", SHARED_RANGES, told.pop("at")) if "at" in told else ()
    known, found = _FIELDS[kind], {}
    for name, value in told.items():
        if name not in known:
            raise ProtocolError(f"{kind.name} with {short(name)}, which frames of this kind do not have")
        found[name] = _checked(kind, name, known[name][0], value)
    if missing := [name for name in _NEEDED[kind] if name not in found]:
        raise ProtocolError(f"{kind.name} without {', '.join(missing)}")
    meta = METAS[kind](**found)
    if meta.fault:
        raise ProtocolError(f"{kind.name} of {meta.fault}")
    return meta, at


def _checked(kind: Kind, name: str, check: Check, value: Any) -> Any:
    try:
        return check(value)
    except ValueError as error:
        raise ProtocolError(f"{kind.name} with {name} {short(value)}: {error}") from error
