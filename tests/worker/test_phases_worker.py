from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.worker.phases import Tables, Verdict


def configuration(number, term=1):
    return Configuration(
        ConfigId(term, number), (Member("w0", Role.WORKER, "h"),), (Member("s0", Role.SERVER, "h", 1),), (0,)
    )


def prepared():
    return Tables(current=configuration(1)).prepare(configuration(2), paused=False, dead=frozenset())


def test_a_plan_from_prepare_to_switch():
    tables, verdict = prepared().arm(ConfigId(1, 2), clock=10, version=7)
    assert verdict is Verdict.ARM
    assert [tables.due(version) for version in (9, 10, 11)] == [False, True, True]
    switched = tables.switch()
    assert (switched.number, switched.prepared, switched.clock) == (ConfigId(1, 2), None, None)


def test_past_the_clock_is_late_and_a_later_order_counts():
    tables, verdict = prepared().arm(ConfigId(1, 2), clock=10, version=11)
    assert verdict is Verdict.LATE
    assert not tables.due(11)
    tables, verdict = tables.arm(ConfigId(1, 2), clock=15, version=11)
    assert verdict is Verdict.ARM
    assert tables.due(15)


def test_at_the_clock_the_switch_is_now():
    assert prepared().arm(ConfigId(1, 2), clock=7, version=7)[1] is Verdict.SWITCH


def test_orders_for_other_configurations_change_nothing():
    tables = prepared()
    assert tables.arm(ConfigId(1, 3), 9, 1) == (tables, Verdict.IGNORE)
    assert tables.arm(ConfigId(1, 1), 9, 1) == (tables, Verdict.SWITCHED)
    assert tables.decide(ConfigId(1, 3)) is Verdict.IGNORE
    assert tables.decide(ConfigId(1, 2)) is Verdict.SWITCH
    assert tables.decide(ConfigId(1, 1)) is Verdict.SWITCHED
    assert tables.prepare(configuration(2), paused=True, dead=frozenset()) is tables
    assert tables.cancel(ConfigId(1, 3)) is tables


def test_a_newer_plan_replaces_a_prepared_one_and_its_clock():
    tables, _ = prepared().arm(ConfigId(1, 2), clock=10, version=7)
    tables = tables.prepare(configuration(3), paused=True, dead=frozenset({"s9"}))
    assert (tables.clock, tables.paused, tables.dead) == (None, True, {"s9"})
    assert tables.cancel(ConfigId(1, 3)).prepared is None


def test_a_higher_term_counts_more_than_a_higher_number():
    tables = Tables(current=configuration(9)).prepare(configuration(1, term=2), paused=False, dead=frozenset())
    assert tables.prepared is not None
