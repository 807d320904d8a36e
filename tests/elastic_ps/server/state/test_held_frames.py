"""Frames that wait for something, judged again when it may have come."""

from collections.abc import Callable

import pytest

from elastic_ps.core.errors import ProtocolError
from elastic_ps.server.state.held_frames import HeldFrame, HeldFrames


def holding(judged: list[int], errors: dict[int, Exception]) -> HeldFrames:
    """Three frames, of which some cannot be judged."""
    held = HeldFrames()

    def judge(number: int) -> Callable[[], None]:
        def again() -> None:
            judged.append(number)
            if number in errors:
                raise errors[number]

        return again

    for number in range(3):
        held.hold(HeldFrame(judge(number), f"w{number}", number), 1)
    return held


def refuse(_node: str, _why: str) -> None:
    pytest.fail("this is no sender's fault")


def test_an_unexpected_error_loses_no_other_frame() -> None:
    judged: list[int] = []
    held = holding(judged, {1: MemoryError()})
    with pytest.raises(MemoryError):
        held.retry(frozenset(), refuse)
    assert judged == [0, 1]
    held.retry(frozenset(), refuse)
    assert judged == [0, 1, 2]
    assert not held


def test_who_sends_what_is_wrong_is_told_and_the_others_are_judged() -> None:
    judged: list[int] = []
    refused: list[tuple[str, str]] = []
    held = holding(judged, {1: ProtocolError("not its block")})
    held.retry(frozenset(["w0"]), lambda *told: refused.append(told))
    assert judged == [1, 2]
    assert refused == [("w1", "not its block")]
