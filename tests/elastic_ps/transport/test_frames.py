"""Frames as bytes: whatever is encoded is decoded, no damage of the header passes, and no damage of the meta."""

import json
from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_ps.core.compression import Compression
from elastic_ps.core.configuration import ConfigId, Role
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import METAS, Meta, RecordMeta, SnapshotMeta
from elastic_ps.transport.frames import HEADER_BYTES, Frame, Header, decode, decode_header, encode
from elastic_ps.transport.json_checks import MOST
from elastic_ps.transport.meta_parts import Encoded, Written

LONG = st.integers(0, 2**64 - 1)
COUNT = st.integers(0, MOST)
NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def some(values):
    return st.lists(values, max_size=4).map(tuple)


RUN = st.tuples(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
GROUPS = st.lists(st.dictionaries(st.text(min_size=1, max_size=9), NUMBER, max_size=3), max_size=3).map(tuple)
HYPER = st.builds(
    Hyper,
    NUMBER,
    NUMBER,
    NUMBER,
    *[st.none() | NUMBER, GROUPS, st.none() | NUMBER, st.booleans(), st.none() | NUMBER],
)
COMPRESSION = st.sampled_from([Compression("float16"), Compression("2bit", 0.25), Compression("topk", ratio=0.5)])
FIELDS = {
    "runs": some(RUN),
    "slice": st.none() | st.tuples(COUNT, COUNT, st.integers(0, 2**32 - 1), COUNT, COUNT),
    "encoded": st.none() | st.builds(Encoded, COMPRESSION, some(COUNT)),
    "rows": st.none() | some(COUNT),
    "hyper": st.none() | HYPER,
    "batch": st.none() | st.tuples(NAME, COUNT),
    "slot": st.none() | COUNT,
    "factor": st.none() | NUMBER,
    "state": some(NAME),
    "dtypes": some(NAME),
    "counts": some(COUNT),
    "applied": st.none() | st.dictionaries(NAME, some(st.integers(-1, MOST)), max_size=3),
    "reason": st.sampled_from(Reason),
    "detail": NAME,
    "configuration": st.none() | st.builds(ConfigId, LONG, LONG),
    "role": st.sampled_from(Role),
    "node": NAME,
    "to": NAME,
    "lane": NAME,
    "connection": NAME,
    **dict.fromkeys(["part", "of", "updates", "request", "kept", "number", "snapshot"], COUNT),
    "absent": some(RUN),
    "written_runs": some(RUN),
    "written": st.none()
    | st.builds(Written, COUNT, COUNT, COUNT, st.integers(0, 2**32 - 1), some(st.tuples(NAME, COUNT, COUNT))),
    **dict.fromkeys(["empty", "skip_overflow", "states", "numbers", "caught_up", "pause"], st.booleans()),
}
PARTICULAR = {
    Kind.RECORD: {"runs": some(RUN).map(lambda runs: runs[:1])},
    Kind.FACTOR: {"factor": st.floats(0, 1)},
    Kind.SQUARES: {"runs": st.just(((3, 2), (9, 1))), "squares": st.tuples(NUMBER, NUMBER, NUMBER), "hyper": HYPER},
}


def metas_of(kind: Kind) -> st.SearchStrategy[Meta]:
    drawn = {**FIELDS, **PARTICULAR.get(kind, {})}
    return st.builds(METAS[kind], **{found.name: drawn[found.name] for found in fields(METAS[kind])})


@st.composite
def snapshots(draw):
    run = draw(st.tuples(st.integers(0, 2**31 - 1), st.integers(1, 3)))

    def numbers(least):
        return st.lists(st.integers(least, MOST), min_size=run[1], max_size=run[1]).map(tuple)

    applied = draw(st.none() | st.dictionaries(NAME, numbers(-1), max_size=3))
    return replace(draw(metas_of(Kind.SNAPSHOT)), runs=(run,), counts=draw(numbers(0)), applied=applied)


ANY_META = st.one_of([metas_of(kind) for kind in Kind if kind is not Kind.SNAPSHOT] + [snapshots()])
FRAMES = st.builds(
    Frame,
    ANY_META,
    st.builds(ConfigId, LONG, LONG),
    COUNT,
    st.integers(0, 2**32 - 1),
    LONG,
    some(st.tuples(COUNT, COUNT, COUNT)),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(FRAMES)
def test_round_trip(frame):
    data = encode(frame)
    header = decode_header(data)
    assert len(data) == HEADER_BYTES + header.meta_bytes
    assert decode(header, data[HEADER_BYTES:]) == frame


def test_a_factor_and_a_bound_of_0_are_told():
    """An exchange with a factor of 0 is skipped, by followers too."""
    hyper = Hyper(max_norm=0.0, factor=0.0)
    frame = Frame(RecordMeta(runs=((0, 1),), hyper=hyper))
    data = encode(frame)
    assert decode(decode_header(data), data[HEADER_BYTES:]).of(RecordMeta).hyper == hyper


def test_a_meta_that_no_peer_would_take_is_not_sent(monkeypatch):
    meta = SnapshotMeta(runs=((0, 30),), counts=tuple(range(30)))
    bound = len(encode(Frame(meta))) - HEADER_BYTES
    monkeypatch.setattr("elastic_ps.transport.frames.MAX_META_BYTES", bound)
    encode(Frame(meta))
    with pytest.raises(
        ProtocolError, match=f"a SNAPSHOT cannot be sent: its meta of {bound + 11} bytes, most of them "
    ):
        encode(Frame(replace(meta, number=1)))


def test_every_kind_has_a_meta_of_its_own():
    assert {kind: meta.kind for kind, meta in METAS.items()} == {kind: kind for kind in Kind}


@given(FRAMES, st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_changed_byte_of_the_header_is_noticed(frame, where, change):
    data = bytearray(encode(frame))
    data[where] ^= change
    with pytest.raises(ProtocolError, match=r"a frame begins with|speaks data-plane protocol|checksum differs"):
        decode_header(data)


# ---- the JSON part -------------------------------------------------------------------------------------------------


def decoded(kind: Kind, text: str | bytes) -> Frame:
    data = text.encode() if isinstance(text, str) else text
    return decode(Header(kind, ConfigId(), 0, 0, len(data), 0), data)


@given(st.sampled_from(Kind), st.binary(max_size=200))
def test_bytes_are_a_meta_or_an_error(kind, data):
    with suppress(ProtocolError):
        assert isinstance(decoded(kind, data).meta, METAS[kind])


@pytest.mark.slow
@settings(deadline=None)
@given(st.sampled_from(Kind), st.data())
def test_a_value_of_any_form_at_any_name_is_taken_as_its_type_or_refused(kind, data):
    names = [*(found.name for found in fields(METAS[kind])), "at", "other"]
    told = data.draw(st.dictionaries(st.sampled_from(names), JSON, max_size=3))
    with suppress(ProtocolError):
        frame = decoded(kind, json.dumps(told))
        assert decoded(kind, encode(frame)[HEADER_BYTES:]) == frame


HYPERS = {"lr": 0.1, "wd": 0, "rescale_grad": 1, "clip_gradient": None}


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (Kind.PUSH, '{"runs":[[0.5,1]]}', "runs"),
        (Kind.PUSH, '{"runs":[[Infinity,1]]}', "Infinity"),
        (Kind.PUSH, '{"runs":[["0","1"]]}', "runs"),
        (Kind.PUSH, '{"runs":[[0,0]]}', "runs"),
        (Kind.PUSH, '{"runs":[[-1,1]]}', "runs"),
        (Kind.PUSH, '{"runs":[[true,1]]}', "runs"),
        (Kind.PUSH, '{"runs":"abc"}', "runs"),
        (Kind.PUSH, '{"runs":[[1%s,1]]}' % ("0" * 400), "runs"),
        (Kind.PUSH, '{"slice":[0,0,0,0]}', "slice"),
        (Kind.PUSH, '{"slice":[0,0,4294967296,0,1]}', "slice"),
        (Kind.PUSH, json.dumps({"hyper": {**HYPERS, "lr": "abc"}}), "lr|number"),
        (Kind.PUSH, json.dumps({"hyper": {**HYPERS, "lr": 1e308}}).replace("1e+308", "1e999"), "finite"),
        (Kind.PUSH, '{"encoded":{"type":["x"],"nbytes":[1]}}', "encoded"),
        (Kind.PUSH, '{"encoded":{"type":"2bit","threshold":1%s,"nbytes":[1]}}' % ("0" * 400), "threshold"),
        (Kind.PUSH, '{"encoded":{"type":"%s","nbytes":[1]}}' % ("x" * 1_000), "encoded"),
        (Kind.PUSH, '{"unheard":1}', "unheard"),
        (Kind.PUSH, '{"at":[[0,0]]}', "at"),
        (Kind.RECORD, '{"runs":"ab"}', "runs"),
        (Kind.RECORD, '{"hyper":{"lr":1}}', "hyper"),
        (Kind.PUSH, json.dumps({"hyper": {**HYPERS, "groups": [{"lr": "abc"}]}}), "hyper|number"),
        (Kind.HELLO, "", "without node"),
        (Kind.HELLO, '{"node":["a"],"role":"worker","lane":"exchange"}', "node"),
        (Kind.HELLO, '{"node":"\\ud800","role":"worker","lane":"exchange"}', "node"),
        (Kind.HELLO, '{"node":"%s","role":"worker","lane":"exchange"}' % ("n" * 1_000_000), "node"),
        (Kind.HELLO, '{"node":"w0","role":"bogus","lane":"exchange"}', "role"),
        (Kind.SNAPSHOT, '{"counts":[1.5]}', "counts"),
        (Kind.SNAPSHOT, '{"applied":[1]}', "applied"),
        (Kind.SNAPSHOT, "", "blocks"),
        (Kind.SNAPSHOT, '{"runs":[[0,2]],"counts":[1]}', "numbers"),
        (Kind.SNAPSHOT, '{"runs":[[0,2]],"counts":[1,1],"applied":{"w0":[1]}}', "numbers"),
        (Kind.NOTICE, '{"runs":[[0,1]]}', "runs"),
        (Kind.PULL, '{"a":' * 100_000, "broken meta"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_meta_that_no_correct_peer_sends_is_refused_by_name(kind, text, wrong):
    with pytest.raises(ProtocolError, match=wrong) as raised:
        decoded(kind, text)
    assert len(str(raised.value)) < 400


def test_a_version_that_cannot_be_counted_on_is_refused():
    with pytest.raises(ProtocolError, match="version"):
        decode_header(encode(Frame(METAS[Kind.NOTICE](), version=MOST + 1)))
