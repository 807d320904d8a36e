"""Many pieces of memory at once, compiled or not."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_ps.native import bulk
from elastic_ps.native.library import address, library

FOUND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


@pytest.fixture(params=["compiled", "plain"])
def kind(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(bulk, "library", lambda: None)
    elif library() is None:
        pytest.skip("no compiler here: there is nothing but ctypes")
    return request.param


def moved(sizes, unit, monkeypatch):
    monkeypatch.setattr(bulk, "_MOVED_BYTES", unit)
    sources = [np.random.default_rng(number).integers(0, 256, size, np.uint8) for number, size in enumerate(sizes)]
    targets = [np.zeros(size + 1, dtype=np.uint8) for size in sizes]
    at = [np.array([address(array) for array in arrays], dtype=np.int64) for arrays in (targets, sources)]
    bulk.move(*at, np.array(sizes, dtype=np.int64))
    return sources, targets


@pytest.mark.parametrize("unit", [1, 7, 1 << 20])
@pytest.mark.parametrize("sizes", [[], [5], [0, 3, 0, 0, 9, 1, 0], [1] * 100, [1000, 1, 3000]])
def test_every_piece_arrives_and_nothing_else_is_touched(kind, monkeypatch, sizes, unit):
    sources, targets = moved(sizes, unit, monkeypatch)
    for source, target in zip(sources, targets, strict=True):
        assert target[:-1].tolist() == source.tolist()
        assert target[-1] == 0


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 50))
def test_any_pieces_in_any_portions(sizes, unit):
    with pytest.MonkeyPatch.context() as patch:
        sources, targets = moved(sizes, unit, patch)
    assert all((target[:-1] == source).all() for source, target in zip(sources, targets, strict=True))


def test_places_of_a_frameworks_arrays(kind):
    find = FOUND(lambda handle, found: found.__setitem__(0, ctypes.c_void_p(handle + 5)) or 0)
    status, places = bulk.find_all(find, [100, 200])
    assert (status, places.tolist()) == (0, [105, 205])


def test_what_a_framework_says_is_wrong(kind):
    assert bulk.find_all(FOUND(lambda _handle, _found: -1), [100, 200])[0] == -1
