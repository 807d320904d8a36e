"""What a node knows of configurations: prepared, armed, switched to, cancelled."""

from dataclasses import replace

import pytest

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.node.standing import ArmAnswer, Standing

W0, W1 = Member("w0", Role.WORKER, "h"), Member("w1", Role.WORKER, "h")
S0 = Member("s0", Role.SERVER, "h", 1)


def table(number: int, term: int = 1, workers: tuple[Member, ...] = (W0,)) -> Configuration:
    return Configuration(ConfigId(term, number), workers, (S0,), (0,))


IN_FORCE = Standing("w0", table(3))
PREPARED = IN_FORCE.prepare(table(5), paused=False, dead=frozenset())


def test_a_node_that_knows_nothing() -> None:
    nobody = Standing("w0")
    assert (nobody.config_id, nobody.is_member, nobody.known) == (ConfigId(0, 0), False, ())
    assert nobody.is_new(ConfigId(1, 1))


@pytest.mark.parametrize("node", ["w0", "s0"])
def test_members_are_workers_and_servers(node: str) -> None:
    assert Standing(node, table(3)).is_member
    assert not Standing("w1", table(3)).is_member


def test_a_plan_from_prepare_to_switch() -> None:
    assert PREPARED.known == (table(3), table(5))
    armed, answer = PREPARED.arm(ConfigId(1, 5), clock=10, version=7)
    assert answer is ArmAnswer.ARMED
    assert [armed.due(version) for version in (9, 10, 11)] == [False, True, True]
    switched = armed.switch()
    assert (switched.config_id, switched.prepared, switched.clock) == (ConfigId(1, 5), None, None)
    assert not switched.due(11)


def test_what_a_plan_says_besides_holds_after_the_switch() -> None:
    switched = IN_FORCE.prepare(table(5), paused=True, dead=frozenset({"w8"})).switch()
    assert (switched.paused, switched.dead) == (True, {"w8"})
    following = switched.prepare(table(6), paused=False, dead=frozenset({"w9"}))
    assert (following.paused, following.dead) == (False, {"w8", "w9"})  # nobody comes back


@pytest.mark.parametrize("clock", [6, 7, 8])
def test_arm_sets_a_clock_and_a_later_one_replaces_it(clock: int) -> None:
    armed, answer = PREPARED.arm(ConfigId(1, 5), clock, 6)
    assert (answer, armed.clock) == (ArmAnswer.ARMED, clock)
    again, _ = armed.arm(ConfigId(1, 5), clock + 1, 6)
    assert again.clock == clock + 1


def test_late_disarms_until_a_later_order() -> None:
    armed, _ = PREPARED.arm(ConfigId(1, 5), 9, 6)
    late, answer = armed.arm(ConfigId(1, 5), 5, 6)
    assert (answer, late.clock) == (ArmAnswer.LATE, None)
    assert not late.due(9)
    again, answer = late.arm(ConfigId(1, 5), 15, 11)
    assert (answer, again.clock) == (ArmAnswer.ARMED, 15)


def test_arm_of_what_is_not_prepared() -> None:
    assert PREPARED.arm(ConfigId(1, 4), 9, 0) == (PREPARED, ArmAnswer.IGNORE)
    assert PREPARED.arm(ConfigId(1, 3), 9, 0) == (PREPARED, ArmAnswer.SWITCHED)


def test_what_is_decided() -> None:
    assert [PREPARED.decided(ConfigId(1, number)) for number in (3, 4, 5, 6)] == [False, False, True, False]


def test_a_repeated_prepare_changes_nothing() -> None:
    armed, _ = PREPARED.arm(ConfigId(1, 5), 9, 6)
    for number in (3, 4, 5):
        assert armed.prepare(table(number), paused=True, dead=frozenset({"w9"})) is armed


def test_a_newer_plan_replaces_a_prepared_one_and_its_clock() -> None:
    armed, _ = PREPARED.arm(ConfigId(1, 5), 10, 7)
    newer = armed.prepare(table(6), paused=True, dead=frozenset({"w9"}))
    assert (newer.prepared, newer.clock, newer.paused, newer.dead) == (table(6), None, True, {"w9"})


def test_a_higher_term_counts_more_than_a_higher_number() -> None:
    assert IN_FORCE.prepare(table(1, term=2), paused=False, dead=frozenset()).prepared == table(1, term=2)


def test_a_cancelled_number_never_comes_back() -> None:
    armed, _ = PREPARED.arm(ConfigId(1, 5), 9, 6)
    cancelled = armed.cancel(ConfigId(1, 5))
    assert (cancelled.prepared, cancelled.clock) == (None, None)
    assert not cancelled.is_new(ConfigId(1, 5))
    assert cancelled.prepare(table(5), paused=False, dead=frozenset()) is cancelled
    assert cancelled.is_new(ConfigId(1, 6))


def test_cancel_of_another_number_keeps_the_plan() -> None:
    armed, _ = PREPARED.arm(ConfigId(1, 5), 9, 6)
    kept = armed.cancel(ConfigId(1, 4))
    assert (kept.prepared, kept.clock) == (table(5), 9)


def test_what_comes_into_force_without_a_joiner() -> None:
    joiner = Standing("w1", table(3))
    assert joiner.passes_by(ConfigId(1, 4))
    assert not joiner.passes_by(ConfigId(1, 3))
    assert not IN_FORCE.passes_by(ConfigId(1, 4))  # a member hears of it by its own plan
    awaiting = joiner.prepare(table(4, workers=(W0, W1)), paused=False, dead=frozenset())
    assert not awaiting.passes_by(ConfigId(1, 4))


def test_a_death_on_top_of_a_servers_death_is_undecided_for_who_has_adopted_the_first() -> None:
    other = Member("s1", Role.SERVER, "h", 1)
    both = replace(table(3), servers=(S0, other), followers=(1,))
    first = Standing("s0", both).prepare(replace(both, id=ConfigId(1, 4)), False, frozenset({"s1"}), True)
    assert first.undecided
    adopted = first.decide(ConfigId(1, 4), table(4), [(0, 1)]).switch()
    assert (adopted.undecided, adopted.replicated, adopted.promoted) == (False, True, ((0, 1),))
    assert adopted.before == both
    on_top = adopted.prepare(table(5), False, frozenset({"s1", "w1"}), True)
    assert (on_top.undecided, on_top.promoted) == (True, ((0, 1),)), "not all may have heard of it"
    assert on_top.decide(ConfigId(1, 5), table(5)).switch().before == both, "nothing has been committed since"
    after = adopted.commit().prepare(table(5), paused=False, dead=frozenset({"w1"}))
    assert (after.undecided, after.promoted) == (False, ())
    assert after.switch().before == table(4)
    assert adopted.prepare(table(5), paused=False, dead=frozenset()).before is None, "the first one is committed"
