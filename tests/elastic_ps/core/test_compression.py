"""What quantization keeps, and that encoding loses nothing more, however a tensor is cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ConfigurationError, ProtocolError

KINDS = [
    Compression("float16"),
    Compression("bfloat16"),
    Compression("2bit", threshold=0.25),
    Compression("topk", ratio=0.1),
]


def values(length: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("compression", KINDS, ids=str)
@settings(deadline=None, derandomize=True, max_examples=20)
@given(length=st.integers(1, 300), data=st.data())
def test_any_cut_decodes_to_what_was_quantized(compression: Compression, length: int, data: st.DataObject) -> None:
    quantized = compression.quantized(values(length))
    edges = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=4))})
    for low, high in pairwise(edges):
        encoded = compression.encode(quantized[low:high])
        assert encoded.dtype == np.uint8
        assert encoded.nbytes <= compression.encoded_bytes(high - low)
        out = np.full(high - low, 7, dtype=np.float32)
        compression.decode(encoded, out)
        np.testing.assert_array_equal(out, quantized[low:high])


def test_float16_rounds_as_numpy_and_overflows_to_inf() -> None:
    given_ = np.array([1.0001, 70_000, -np.inf, np.nan], np.float32)
    expected = np.array([1.0, np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(Compression("float16").quantized(given_), expected)


def test_bfloat16_rounds_to_the_nearest_with_ties_to_even() -> None:
    exact = np.array([1.0, 1.0078125, -3.0, 0.0, np.inf], np.float32)
    compression = Compression("bfloat16")
    np.testing.assert_array_equal(compression.quantized(exact), exact)
    ties = np.array([1.00390625, 1.01171875, 1.004, np.nan, 3.4e38], np.float32)
    expected = np.array([1.0, 1.015625, 1.0078125, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(compression.quantized(ties), expected)


def test_two_bits_are_three_levels() -> None:
    given_ = np.array([0.5, 0.49, -0.5, -0.7, 0, 9], np.float32)
    assert Compression("2bit").quantized(given_).tolist() == [0.5, 0, -0.5, -0.5, 0, 0.5]
    assert Compression("2bit").encode(Compression("2bit").quantized(given_)).nbytes == 2


def test_topk_keeps_the_largest_and_at_least_one() -> None:
    given_ = np.array([1, -5, 2, 4, 0, 3], np.float32)
    assert Compression("topk", ratio=0.34).quantized(given_).tolist() == [0, -5, 0, 4, 0, 0]
    assert np.count_nonzero(Compression("topk", ratio=0.001).quantized(given_)) == 1
    assert Compression("topk", ratio=1.0).quantized(given_).tolist() == given_.tolist()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "type None: the type is one of float16, bfloat16, 2bit, topk"),
        ({"type": "1bit"}, "type '1bit': the type is one of"),
        ({"type": ["1bit"]}, r"type \['1bit'\]: the type is one of"),
        ({"type": "2bit", "threshold": 0}, "threshold must be above 0 and at most 3.40282e\\+38, not 0"),
        ({"type": "2bit", "threshold": float("inf")}, "threshold must be above 0"),
        ({"type": "2bit", "threshold": 10**400}, "threshold must be above 0"),
        ({"type": "2bit", "ratio": 0.1}, "2bit takes 'threshold' and nothing else, not 'ratio'"),
        ({"type": "topk", "ratio": 1.5}, "ratio must be above 0 and at most 1, not 1.5"),
        ({"type": "topk", "ratio": "1"}, "ratio must be above 0 and at most 1, not '1'"),
        ({"type": "float16", "threshold": 1}, "float16 takes nothing else, not 'threshold'"),
    ],
)
def test_what_cannot_be_is_refused(params: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        Compression.of(params)


@pytest.mark.parametrize("compression", KINDS, ids=str)
def test_it_is_told_as_it_is(compression: Compression) -> None:
    assert Compression.told(compression.tell()) == compression
    with pytest.raises(ProtocolError):
        Compression.told({**compression.tell(), "type": "zip"})


@pytest.mark.parametrize("compression", KINDS, ids=str)
@pytest.mark.parametrize("nbytes", [1, 7, 801])
def test_what_is_no_encoding_of_so_many_elements_is_refused(compression: Compression, nbytes: int) -> None:
    with pytest.raises(ProtocolError):
        compression.decode(np.zeros(nbytes, np.uint8), np.empty(100, np.float32))


def test_an_element_outside_of_the_tensor_is_refused() -> None:
    data = np.concatenate([np.array([100], "<u4").view(np.uint8), np.ones(1, np.float32).view(np.uint8)])
    with pytest.raises(ProtocolError, match="element 100"):
        Compression("topk").decode(data, np.empty(100, np.float32))
