"""An acknowledgement counts for the stream that it is about."""

import numpy as np

from elastic_ps.server.copying.streamed_blocks import StreamedBlocks


def mask(*blocks: int) -> np.ndarray:
    return np.isin(np.arange(4), blocks)


def test_what_is_said_of_a_stream_that_has_ended_does_not_count() -> None:
    streamed = StreamedBlocks(4)
    before = streamed.begin((0, 2))
    streamed.keep(mask(1))
    again = streamed.begin((0, 1))
    assert streamed.counted([(0, 2)], before) == [(1, 1)]
    assert streamed.counted([(0, 2)], 0) == [(1, 1)], "of a record that was sent before"
    assert streamed.counted([(0, 1)], again) == [(0, 1)]
    assert streamed.counted([(0, 2)], 0) == [(0, 2)]


def test_what_nobody_streams_is_not_counted() -> None:
    streamed = StreamedBlocks(4)
    number = streamed.begin((2, 1))
    streamed.drop((2, 1))
    assert streamed.counted([(2, 1), (3, 1)], number) == []
    assert streamed.counted([(3, 1)], 0) == []


def test_a_follower_that_handed_blocks_over_has_them() -> None:
    streamed = StreamedBlocks(2)
    streamed.keep(mask(0, 3))
    streamed.are_level(np.array([2, 3]), mask(0, 3))
    assert streamed.mask.tolist() == mask(3).tolist()
    assert streamed.counted([(0, 4)], 0) == [(3, 1)]
