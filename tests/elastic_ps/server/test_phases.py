"""What a server decides, without a server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.node.standing import Standing
from elastic_ps.server.phases import (
    BlockStatus,
    BlockVerdict,
    FrameVerdict,
    Given,
    UpdateOutcome,
    due,
    judge,
    moves,
    outcome,
    parts,
    weights,
)

W0, W1 = Member("w0", Role.WORKER, "h"), Member("w1", Role.WORKER, "h")
S0, S1, S2 = (Member(f"s{number}", Role.SERVER, "h", number) for number in range(3))


def configuration(
    number: int, servers: tuple[Member, ...] = (S0, S1), assignment: tuple[int, ...] = (0, 0, 1, 1)
) -> Configuration:
    return Configuration(ConfigId(1, number), (W0,), servers, assignment)


IN_FORCE = Standing("s0", current=configuration(3))
PREPARED = IN_FORCE.prepare(configuration(5), False, frozenset())


@pytest.mark.parametrize(
    ("standing", "number", "sender", "verdict"),
    [
        (IN_FORCE, ConfigId(1, 3), "w0", FrameVerdict.SERVE),
        (IN_FORCE, ConfigId(1, 3), "w1", FrameVerdict.UNKNOWN),
        (IN_FORCE, ConfigId(1, 2), "w0", FrameVerdict.STALE),
        (IN_FORCE, ConfigId(0, 9), "w0", FrameVerdict.STALE),  # a lower term, whatever the number
        (IN_FORCE, ConfigId(1, 5), "w0", FrameVerdict.HOLD),
        (IN_FORCE, ConfigId(2, 1), "w0", FrameVerdict.HOLD),
        (PREPARED, ConfigId(1, 5), "w0", FrameVerdict.SWITCH),
        (PREPARED, ConfigId(1, 3), "w0", FrameVerdict.SERVE),
        (PREPARED, ConfigId(1, 4), "w0", FrameVerdict.HOLD),
        (Standing("s0"), ConfigId(1, 1), "w0", FrameVerdict.HOLD),
    ],
)
def test_frames_are_judged_by_configuration_then_sender(
    standing: Standing, number: ConfigId, sender: str, verdict: FrameVerdict
) -> None:
    assert judge(standing, number, sender) is verdict


def test_a_shadow_may_read() -> None:
    assert judge(IN_FORCE, ConfigId(1, 3), "w9", reads=True) is FrameVerdict.SERVE


def test_parts_of_a_push() -> None:
    status = np.array(
        [
            BlockStatus.PRIMARY,
            BlockStatus.PRIMARY,
            BlockStatus.PRIMARY,
            BlockStatus.FOLLOWER,
            BlockStatus.EMPTY,
            BlockStatus.FROZEN,
            BlockStatus.ABSENT,
        ]
    ).astype(np.int8)
    versions = np.array([4, 5, 3, 4, 0, 4, 0])
    expected = [
        BlockVerdict.KEEP,
        BlockVerdict.ANSWER,
        BlockVerdict.HOLD,
        BlockVerdict.HOLD,
        BlockVerdict.HOLD,
        BlockVerdict.FOREIGN,
        BlockVerdict.FOREIGN,
    ]
    assert parts(status, versions == 4, versions > 4).tolist() == expected


@pytest.mark.parametrize(
    ("contributions", "result"),
    [
        ([Given.GRADIENT, Given.GRADIENT], UpdateOutcome.UPDATE),
        ([Given.GRADIENT, Given.EMPTY], UpdateOutcome.UPDATE),
        ([Given.ABSENT, Given.ABSENT], UpdateOutcome.KEEP),
        ([Given.ABSENT, Given.EMPTY], UpdateOutcome.KEEP),
        ([Given.EMPTY, Given.EMPTY], UpdateOutcome.KEEP),
        ([Given.GRADIENT, Given.ABSENT], UpdateOutcome.MISMATCH),
        ([Given.GRADIENT, Given.EMPTY, Given.ABSENT], UpdateOutcome.MISMATCH),
    ],
)
def test_outcome_of_a_complete_roster(contributions: list[Given], result: UpdateOutcome) -> None:
    assert outcome(contributions) is result


def test_due_needs_every_block_and_at_least_one() -> None:
    armed, _ = PREPARED.arm(ConfigId(1, 5), 7, 6)
    assert not due(armed, np.array([7, 6]))
    assert due(armed, np.array([7, 7]))
    assert not due(armed, np.array([], dtype=np.int64))
    assert not due(PREPARED, np.array([7]))


assignments = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(before=assignments, after=assignments)
def test_moves_of_all_servers_fit_together(before: list[int], after: list[int]) -> None:
    """What one gives is what the other takes; fresh blocks are those beyond the old model."""
    servers = (S0, S1, S2)
    after = (after * 12)[: max(len(after), len(before))]  # a model only grows
    old, new = configuration(1, servers, tuple(before)), configuration(2, servers, tuple(after))
    every = {server.id: moves(server.id, old, new) for server in servers}
    for giver in every:
        for taker in every:
            assert every[giver].out.get(taker, []) == every[taker].into.get(giver, [])
        assert giver not in every[giver].out
        held = set(old.blocks_of[giver]) - {block for out in every[giver].out.values() for block in out}
        assert held | set(every[giver].incoming) | set(every[giver].fresh) == set(new.blocks_of[giver])
    assert sorted(block for m in every.values() for block in m.fresh) == list(range(len(before), len(after)))


def test_weights() -> None:
    total = DataSpec(True, 100, 8)
    mean = DataSpec(True, 100, 8, loss="mean")
    assert weights(total, False, [4, 4]) == (None, 1.0)
    assert weights(total, False, [3, 2]) == (None, 8 / 5)
    assert weights(mean, False, [6, 2]) == ([0.75, 0.25], 1.0)
    assert weights(mean, False, [8]) == (None, 1.0)
    assert weights(total, True, [6, 2]) == ([0.75, 0.25], 1.0)
    assert weights(DataSpec(), True, [0, 0]) == ([0.5, 0.5], 1.0)
    assert weights(DataSpec(), False, [3, 2]) == (None, 1.0)
