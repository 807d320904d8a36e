"""Snapshots flow evenly."""

from elastic_ps.server.copying.snapshot_pace import FREE_BYTES, RATE, SECONDS, SnapshotPace

PIECE = 1 << 20


def flow(pace: SnapshotPace, now: float) -> None:
    """Send as much as is allowed, in pieces of 1 MiB."""
    while pace.sent < pace.total and pace.allows(now):
        pace.sent += PIECE


def test_a_second_lets_so_much_through() -> None:
    pace = SnapshotPace(5 * RATE, started=5.0)
    for second in (1, 2, 4):
        flow(pace, 5.0 + second)
        assert second * RATE <= pace.sent <= second * RATE + FREE_BYTES + PIECE


def test_streams_share_it() -> None:
    pace = SnapshotPace(2 * RATE, started=5.0, streams=4)
    flow(pace, 5.0 + 4)
    assert RATE <= pace.sent <= RATE + FREE_BYTES + PIECE


def test_however_large_it_is_over_in_time() -> None:
    pace = SnapshotPace(int(10 * RATE * SECONDS), started=5.0)
    flow(pace, 5.0 + SECONDS / 2)
    assert pace.total / 2 <= pace.sent <= pace.total / 2 + FREE_BYTES + PIECE
    flow(pace, 5.0 + SECONDS)
    assert pace.sent == pace.total


def test_a_small_model_flows_at_once() -> None:
    assert SnapshotPace(FREE_BYTES, started=5.0, sent=FREE_BYTES - 1).allows(5.0)


def test_what_is_sent_again_is_not_held_back_for_ever() -> None:
    assert SnapshotPace(RATE, started=5.0, sent=20 * RATE).allows(5.0 + SECONDS)
    assert not SnapshotPace(RATE, started=5.0, sent=2 * RATE).allows(6.0)
