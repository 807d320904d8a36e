"""What comes from strangers, over every transport: no frames, another token."""

import json
import struct
import zlib
from contextlib import closing

import pytest

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import MAX_META_BYTES
from elastic_ps.transport.greeting import PROTOCOL_VERSION
from tests.elastic_ps.transport.wiring import TIMEOUT, Aside, Memory, meet

HEADER = struct.Struct("<4sHHQQQIIQ")


def header(magic=b"ELPS", protocol=PROTOCOL_VERSION, kind=int(Kind.PUSH), meta=0, payload=0):
    """A header whose checksum is right, with one thing wrong in it."""
    data = HEADER.pack(magic, protocol, kind, 1, 2, 3, 4, meta, payload)
    return data + struct.pack("<I", zlib.crc32(data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(magic=b"HTTP"), "begins with b'HTTP', not b'ELPS': another program, or another version of this one"),
        (header(protocol=9), f"protocol 9, this node {PROTOCOL_VERSION}"),
        (header(kind=99), "unknown kind 99"),
        (header(kind=0), "unknown kind 0"),
        (header(meta=MAX_META_BYTES + 1), "16777217 bytes of meta"),
        (header()[:-1] + b"\0", "checksum differs"),
        (header(meta=2) + b"[]", r"PUSH whose meta is \[\], no JSON object: another program"),
        (header(meta=4) + b"null", "whose meta is .*, no JSON object"),
        (header(meta=3) + b'{"a', "broken meta"),
        (header(meta=2) + b"\xff\xfe", "broken meta"),
        (header(meta=100_000) + b"[" * 100_000, "broken meta"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_frame_of_this_job_is_an_error(wiring, listener, data, message):
    peer, connection = meet(lambda: wiring.raw(listener), listener)
    peer.send(data)
    with pytest.raises(ProtocolError, match=message):
        connection.receive()
    connection.close()


def test_a_peer_with_another_token(wiring, listener):
    connecting = Aside(wiring.transport(b"x" * 16).connect, *listener.address, "server")
    if not isinstance(wiring, Memory):
        with pytest.raises((PeerLost, ProtocolError), match=r"closed|reset|token"), closing(listener.accept()) as end:
            end.greet(TIMEOUT)
    with pytest.raises(PeerLost, match=r"does not know this job's token|closed|reset") as raised:
        connecting.result()
    assert "x" * 16 not in str(raised.value)


def test_meta_is_json_as_the_frame_has_it(wiring, listener):
    text = json.dumps({"runs": [[0, 3]], "empty": True, "batch": ["é", 7]}, ensure_ascii=False).encode()
    peer, connection = meet(lambda: wiring.raw(listener), listener)
    peer.send(header(meta=len(text)) + text)
    assert connection.receive().meta == PushMeta(runs=((0, 3),), empty=True, batch=("é", 7))
    connection.close()
