"""Snapshots are spread over the steps."""

from elastic_ps.server.pace import FREE_BYTES, SECONDS, STEPS, Pace

TOTAL = 100 * FREE_BYTES


def flow(pace: Pace, now: float) -> None:
    """Send as much as is allowed, in pieces of 1 MiB."""
    while pace.sent < TOTAL and pace.allows(now):
        pace.sent += 1 << 20


def test_each_update_lets_an_even_share_through() -> None:
    pace = Pace(TOTAL, started=5.0)
    shares = []
    for _ in range(STEPS):
        before = pace.sent
        pace.steps += 1
        flow(pace, 5.0)
        shares.append(pace.sent - before)
    assert pace.sent == TOTAL
    assert max(shares) <= TOTAL / STEPS + FREE_BYTES + (1 << 20)
    assert shares[-1] > 0, "the last share comes with the last step"


def test_time_lets_it_through_where_steps_are_long_or_stand_still() -> None:
    pace = Pace(TOTAL, started=5.0)
    flow(pace, 5.0 + SECONDS / 2)
    assert TOTAL / 2 <= pace.sent <= TOTAL / 2 + FREE_BYTES + (1 << 20)
    flow(pace, 5.0 + SECONDS)
    assert pace.sent == TOTAL


def test_a_small_model_flows_at_once() -> None:
    assert Pace(FREE_BYTES, started=5.0, sent=FREE_BYTES - 1).allows(5.0)


def test_what_is_sent_again_is_not_held_back_for_ever() -> None:
    assert Pace(TOTAL, started=5.0, steps=STEPS, sent=2 * TOTAL).allows(5.0)
    assert not Pace(TOTAL, started=5.0, steps=STEPS - 1, sent=2 * TOTAL).allows(5.0)
