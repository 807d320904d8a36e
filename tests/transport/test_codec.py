"""Frames as bytes: whatever is encoded is decoded, and no damage of the header passes."""

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.token import TOKEN_BYTES
from elastic_ps.transport.frames import HEADER_BYTES, Frame, Kind, decode_header, decode_meta, encode

TOKENS = st.binary(min_size=TOKEN_BYTES, max_size=TOKEN_BYTES)
LONG = st.integers(0, 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FRAMES = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.builds(ConfigId, LONG, LONG),
    LONG,
    st.integers(0, 2**32 - 1),
    st.dictionaries(st.text(), JSON, max_size=5),
    LONG,
)


@given(FRAMES, TOKENS)
def test_round_trip(frame, token):
    data = encode(frame, token)
    decoded, meta_bytes = decode_header(data, token)
    assert len(data) == HEADER_BYTES + meta_bytes
    decoded.meta = decode_meta(data[HEADER_BYTES:])
    assert decoded == frame


@given(FRAMES, TOKENS, st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_changed_byte_of_the_header_is_noticed(frame, token, where, change):
    data = bytearray(encode(frame, token))
    data[where] ^= change
    with pytest.raises(
        ProtocolError, match=r"wrong magic|speaks data-plane protocol|this job's token|checksum differs"
    ):
        decode_header(data, token)


@given(FRAMES, TOKENS, TOKENS)
def test_another_jobs_token_is_refused_and_not_shown(frame, token, other):
    assume(token != other)
    with pytest.raises(ProtocolError, match=r"^frame without this job's token$"):
        decode_header(encode(frame, token), other)


@given(FRAMES, TOKENS, TOKENS, st.integers(8 + len(bytes(16)), HEADER_BYTES - 1), st.integers(1, 255))
def test_nothing_behind_the_token_is_looked_at_before_it(frame, token, other, where, change):
    assume(token != other)
    data = bytearray(encode(frame, token))
    data[where] ^= change  # kinds, lengths, the checksum: a stranger's are all the same
    with pytest.raises(ProtocolError, match=r"^frame without this job's token$"):
        decode_header(data, other)


@given(st.binary(max_size=200))
def test_meta_is_an_object_or_an_error(data):
    with suppress(ProtocolError):
        assert isinstance(decode_meta(data), dict)
