"""The launcher's decisions, without a process."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_RESTART
from elastic_ps.core.script_hints import HOW_TO_JOIN
from elastic_ps.launch.decide import (
    LONGEST_PAUSE_OF_COORDINATOR,
    EndProcess,
    Finish,
    GiveUp,
    LocalProcess,
    StartProcesses,
    WantedNodes,
    describe_death,
    is_death,
    is_failure,
    observe,
    outdated,
    pause,
    plan,
    with_death,
)
from elastic_ps.launch.restart_budget import RestartBudget
from protos import elastic_pb2 as pb

BUDGET = RestartBudget(3)


def starting(workers: int = 0, servers: int = 0) -> WantedNodes:
    return WantedNodes(starting={Role.WORKER: workers, Role.SERVER: servers})


def pending(*nonces: str, role: Role = Role.WORKER) -> list[LocalProcess]:
    return [LocalProcess(nonce, role) for nonce in nonces]


def test_starts_what_is_wanted_servers_first() -> None:
    assert plan(starting(2, 1), [], BUDGET) == (StartProcesses(Role.SERVER, 1), StartProcesses(Role.WORKER, 2))


def test_waits_for_processes_that_have_not_registered() -> None:
    assert plan(starting(workers=2), pending("a", "b"), BUDGET) == ()
    assert plan(starting(workers=3), pending("a", "b"), BUDGET) == (StartProcesses(Role.WORKER, 1),)


def test_waits_for_processes_that_other_launchers_start_again() -> None:
    away = {Role.WORKER: 1}
    assert plan(starting(workers=3), pending("a"), BUDGET, away=away) == (StartProcesses(Role.WORKER, 1),)
    assert plan(starting(workers=1), (), BUDGET, away=away) == ()
    assert plan(starting(workers=1), pending("a"), BUDGET, away=away) == (), "it may come first"


def test_registered_processes_do_not_count_as_starting() -> None:
    registered = LocalProcess("a", Role.WORKER, node="w0")
    assert plan(starting(workers=1), [registered], BUDGET) == (StartProcesses(Role.WORKER, 1),)


def test_ends_the_newest_unregistered_process_when_it_is_not_wanted() -> None:
    assert plan(starting(workers=1), pending("old", "new"), BUDGET) == (EndProcess("new"),)
    assert plan(starting(), pending("old", "new"), BUDGET) == (EndProcess("old"), EndProcess("new"))


def test_never_ends_a_registered_process() -> None:
    assert (
        plan(starting(), [LocalProcess("a", Role.WORKER, node="w0"), LocalProcess("b", Role.SERVER, node="s0")], BUDGET)
        == ()
    )


def test_what_is_ending_counts_neither_as_coming_nor_as_surplus() -> None:
    ending = [LocalProcess("a", Role.WORKER, ending=True)]
    assert plan(starting(), ending, BUDGET) == ()
    assert plan(starting(workers=1), ending, BUDGET) == (StartProcesses(Role.WORKER, 1),)


def test_nothing_before_the_coordinator_has_spoken() -> None:
    assert plan(None, pending("a"), BUDGET) == ()


def test_ended_beats_everything() -> None:
    wanted = replace(starting(workers=1), ended=True, failed=True, reason="lost s0")
    assert plan(wanted, [], RestartBudget(0, ("died",))) == (Finish(True, "lost s0"),)


def test_gives_up_when_more_has_died_than_may() -> None:
    budget = RestartBudget(2, ("a died", "b died"))
    assert plan(starting(workers=1), [], budget) == (StartProcesses(Role.WORKER, 1),)
    (action,) = plan(starting(workers=1), [], RestartBudget(2, (*budget.deaths, "c died")))
    assert action == GiveUp("c died; --max-restarts 2 has been used up")
    assert plan(None, [], RestartBudget(0, ("c died",))) == (GiveUp("c died"),)


@given(
    workers=st.integers(0, 5),
    servers=st.integers(0, 5),
    processes=st.lists(
        st.builds(
            LocalProcess,
            nonce=st.text(min_size=3, max_size=8),
            role=st.sampled_from(Role),
            node=st.sampled_from(["", "n1"]),
            leaving=st.booleans(),
            ending=st.booleans(),
        ),
        max_size=8,
        unique_by=lambda local: local.nonce,
    ),
)
@pytest.mark.slow
def test_one_round_reaches_what_is_wanted(workers: int, servers: int, processes: list[LocalProcess]) -> None:
    wanted = starting(workers, servers)
    by_nonce = {local.nonce: local for local in processes}
    for action in plan(wanted, processes, BUDGET):
        if isinstance(action, StartProcesses):
            by_nonce |= {f"+{action.role}{number}": LocalProcess("", action.role) for number in range(action.count)}
        elif isinstance(action, EndProcess):
            assert not by_nonce[action.nonce].node
            del by_nonce[action.nonce]
    after = list(by_nonce.values())
    coming = [local.role for local in after if not local.node and not local.ending]
    assert (coming.count(Role.WORKER), coming.count(Role.SERVER)) == (workers, servers)
    assert plan(wanted, after, BUDGET) == ()


def test_who_is_expelled_stays_so() -> None:
    before = (LocalProcess("a", Role.WORKER, "w0"), LocalProcess("b", Role.WORKER))
    told = {"expelled": frozenset({"a", "y"}), "evicted": frozenset({"a"}), "restarting": frozenset({"b"})}
    after = observe(before, WantedNodes(nodes={"x": "w7"}, **told))
    assert [(each.expelled, each.evicted, each.restarting) for each in after] == [
        (True, True, False),
        (False, False, True),
    ]
    assert observe(after, WantedNodes()) == after
    assert observe(before, WantedNodes()) == before, "a coordinator that knows nobody has expelled nobody"


def test_a_restore_ends_those_whom_the_coordinator_names_once() -> None:
    processes = (
        LocalProcess("a", Role.WORKER, "w0"),
        LocalProcess("b", Role.WORKER),
        LocalProcess("c", Role.SERVER, ending=True),
    )
    assert outdated(processes, WantedNodes(restarting=frozenset({"a", "c", "x"}))) == ("a",)
    assert outdated(processes, WantedNodes()) == ()


def test_pauses_of_a_coordinator_double_up_to_a_bound() -> None:
    assert [pause(ends) for ends in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert pause(10**9) == 30
    assert [pause(ends, LONGEST_PAUSE_OF_COORDINATOR) for ends in (1, 2, 5, 6, 10**9)] == [0, 1, 8, 8, 8]


def test_observe_remembers_ids_and_departures() -> None:
    processes = (LocalProcess("a", Role.WORKER), LocalProcess("b", Role.WORKER))
    seen = observe(processes, WantedNodes(nodes={"a": "w0", "x": "w7"}, leaving=frozenset({"w0"})))
    assert seen == (LocalProcess("a", Role.WORKER, "w0", joined=True, leaving=True), LocalProcess("b", Role.WORKER))
    assert observe(seen, WantedNodes()) == seen


def test_who_registers_has_not_joined_yet() -> None:
    processes = (LocalProcess("a", Role.WORKER),)
    (seen,) = observe(processes, WantedNodes(nodes={"a": "w0"}, joining=frozenset({"w0"})))
    assert (seen.node, seen.joined) == ("w0", False)
    (seen,) = observe((seen,), WantedNodes(nodes={"a": "w0"}))
    assert seen.joined
    assert observe((seen,), WantedNodes(nodes={"a": "w0"}, joining=frozenset({"w0"}))) == (seen,)


@pytest.mark.parametrize(
    ("process", "status", "wanted", "counts"),
    [
        (LocalProcess("a", Role.WORKER, "w0"), 1, WantedNodes(), True),
        (LocalProcess("a", Role.WORKER, "w0"), 137, None, True),
        (LocalProcess("a", Role.WORKER, "w0"), 0, WantedNodes(), False),
        (LocalProcess("a", Role.WORKER), 0, WantedNodes(), True),
        (LocalProcess("a", Role.WORKER), 1, WantedNodes(), True),
        (LocalProcess("a", Role.SERVER, "s0"), EXIT_RESTART, WantedNodes(), False),
        (LocalProcess("a", Role.SERVER, "s0", leaving=True), 1, WantedNodes(), False),
        (LocalProcess("a", Role.WORKER, "w0", expelled=True), 137, WantedNodes(), True),
        (LocalProcess("a", Role.WORKER, "w0", expelled=True), 0, WantedNodes(), False),
        (LocalProcess("a", Role.WORKER, "w0", expelled=True, evicted=True), 137, WantedNodes(), False),
        (LocalProcess("a", Role.WORKER, "w0", leaving=True, expelled=True), 137, WantedNodes(), False),
        (LocalProcess("a", Role.WORKER, ending=True), 143, WantedNodes(), False),
        (LocalProcess("a", Role.WORKER, "w0"), 1, WantedNodes(ended=True), False),
    ],
)
def test_which_exits_are_deaths(process: LocalProcess, status: int, wanted: WantedNodes | None, counts: bool) -> None:
    assert is_death(process, status, wanted) is counts


def test_a_death_is_described_with_its_log() -> None:
    worker = LocalProcess("worker-1", Role.WORKER, "w0")
    assert describe_death(worker, 1, "L") == "worker w0 exited with status 1 (log: L)"
    assert describe_death(worker, 137, "L") == "worker w0 was killed by SIGKILL (log: L)"
    raised = "ValueError: no such file"
    assert describe_death(worker, 1, "L", raised) == f"worker w0 exited with status 1: {raised} (log: L)"
    assert describe_death(worker, 137, "L", "step 7") == "worker w0 was killed by SIGKILL (log: L)"
    assert describe_death(worker, 128 + 35, "L") == "worker w0 was killed by signal 35 (log: L)"
    assert describe_death(worker, 250, "L") == "worker w0 exited with status 250 (log: L)"
    expelled = replace(worker, expelled=True)
    for status in (1, 137):
        text = describe_death(expelled, status, "L")
        assert text == "worker w0 was silent or cut off for too long, and its process has ended (log: L)"
    text = describe_death(LocalProcess("worker-1", Role.WORKER), 0, "L")
    assert text == f"worker worker-1 ended without having joined the job; {HOW_TO_JOIN} (log: L)"


def test_wanted_is_decoded() -> None:
    message = pb.Wanted(
        workers=2, servers=1, starting_workers=1, leaving=["w0"], nodes=["w0", "s0"], nonces=["a", "b"], reason="r"
    )
    message.joining.append("s0")
    message.expelled.extend(["c", "d"])
    message.evicted.append("d")
    message.restarting.append("a")
    assert WantedNodes.from_pb(message) == WantedNodes(
        counts={Role.WORKER: 2, Role.SERVER: 1},
        starting={Role.WORKER: 1, Role.SERVER: 0},
        leaving=frozenset({"w0"}),
        nodes={"a": "w0", "b": "s0"},
        joining=frozenset({"s0"}),
        expelled=frozenset({"c", "d"}),
        evicted=frozenset({"d"}),
        restarting=frozenset({"a"}),
        reason="r",
    )


def test_who_was_expelled_fails_no_job_that_has_finished_without_it() -> None:
    """Found by the simulated world: a frozen worker woke up when the others had finished, and ended."""
    worker = LocalProcess("w", Role.WORKER, "w0", joined=True)
    known = WantedNodes(nodes={"w": "w0"}, ended=True)
    assert is_failure(worker, 1, known)
    assert is_failure(worker, 1, None)
    for without in ("expelled", "evicted", "leaving", "restarting"):
        assert not is_failure(replace(worker, **{without: True}), 1, known)


def test_whom_a_coordinator_that_began_anew_never_knew_fails_no_job_that_has_finished() -> None:
    """Found by the simulated world: the worker of before had not ended yet when the job had finished without it."""
    worker = LocalProcess("w", Role.WORKER, "w4", joined=True)
    assert not is_failure(worker, 1, WantedNodes(nodes={"x": "w4000"}, ended=True))


def test_who_came_too_late_fails_no_job_that_has_finished_without_it() -> None:
    """Found by the simulated world: a worker that was to join was told twice to go, and the job called failed."""
    assert not is_failure(LocalProcess("w", Role.WORKER, "w3"), 143, None)


@pytest.mark.parametrize(("name", "found"), [("w1", True), ("w10", True), ("w0", False), ("", False), ("s1", False)])
def test_a_failed_job_tells_of_the_death_that_its_reason_names(name: str, found: bool) -> None:
    reason = "the last worker died (w1, w10)"
    assert with_death(reason, name, "it fell") == (f"{reason}; it fell" if found else reason)
