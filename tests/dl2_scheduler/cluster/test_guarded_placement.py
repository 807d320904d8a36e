"""The time that a slow placement policy may take, of whatever it is asked."""

import sys

from dl2_scheduler.cluster.hardware.view import Places
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.placement.task_moves import MoveCost, MoveTerms
from dl2_scheduler.policies.placement.registry import spread_placement
from tests.dl2_scheduler.policies.placement.test_moving import pair
from tests.dl2_scheduler.policies.placement.test_placement_policies import job, view_of

SECONDS, NODES = 30.0, ["node-0", "node-1"]
TERMS = MoveTerms(MoveCost(0.1, 0.0, ""), 2)


class Slow:
    """Takes so many seconds of a played clock for each answer."""

    name = "slow"

    def __init__(self, takes):
        self.takes, self.time, self.asked = takes, 0.0, []

    def _answer(self, what, answer):
        self.asked.append(what)
        self.time += self.takes
        return answer

    def place(self, view):
        return self._answer("place", Places({0: ((0,), (0,))}))

    def explain(self, view, places, nodes):
        return self._answer("explain", {0: "because"})

    def moves(self, view, terms, nodes):
        return self._answer("moves", ())

    def unknown(self, models):
        return []


class Lazy(dict):
    """Ends the program when somebody reads it."""

    def items(self):
        sys.exit(7)


class Computes(Slow):
    """Answers what computes when it is read."""

    def place(self, view):
        return Places(Lazy())


class Counts(Slow):
    """Answers numbers that are none."""

    def place(self, view):
        return Places({0: ((0.5,), (0,))})


def test_an_answer_is_read_within_the_policys_own_thread():
    for policy, fault in ((Computes(0), "it raised SystemExit: 7"), (Counts(0), "'float' object cannot be")):
        answer = GuardedPlacement(policy, spread_placement(), SECONDS, now=lambda: 0.0).place(wanting(), NODES)
        assert fault in answer.fault
        assert set(answer.places.groups) == {0}


def asked(takes):
    policy = Slow(takes)
    return policy, GuardedPlacement(policy, spread_placement(), SECONDS, now=lambda: policy.time)


def wanting():
    return view_of([job(0, "wlm")], nodes=2)


def test_what_a_placement_policy_says_at_length_is_cut():
    class Talks(Slow):
        def explain(self, view, places, nodes):
            return {0: "because " + "x" * 1_000_000}

    class Fails(Slow):
        def place(self, view):
            raise ValueError("x" * 1_000_000)

    for policy in (Talks(0.0), Fails(0.0)):
        answer = GuardedPlacement(policy, spread_placement(), SECONDS, now=lambda: 0.0).place(wanting(), NODES)
        assert len(answer.reasons[0]) < 1300


def test_all_questions_of_a_slot_together_have_one_bound():
    policy, placement = asked(takes=0.4 * SECONDS)
    with placement.one_slot():
        assert placement.place(wanting(), NODES).reasons == {0: "because"}
        placement.moves(pair(), TERMS, NODES)
    assert policy.asked == ["place", "explain", "moves"]
    policy, placement = asked(takes=0.6 * SECONDS)
    with placement.one_slot():
        answer = placement.place(wanting(), NODES)
        assert (answer.fault, answer.reasons) == ("", {0: "because"})
        placement.moves(pair(), TERMS, NODES)
    assert policy.asked == ["place", "explain"]  # 36 s; it is not asked a third time


def test_that_a_slot_has_no_time_left_to_move_is_said_once(caplog):
    policy, placement = asked(takes=SECONDS)
    for _ in range(3):
        with placement.one_slot():
            placement.place(wanting(), NODES)
            assert placement.moves(pair(), TERMS, NODES) == ()
    told = "no task is moved: slow: what it was asked before took the 30 s that it has"
    assert sum(told in record.message for record in caplog.records) == 1
    assert policy.asked == ["place"] * 3  # nor why


def test_the_next_slot_and_what_no_slot_waits_for_has_its_own_time():
    policy, placement = asked(takes=0.9 * SECONDS)
    for _ in range(3):
        assert placement.place(wanting(), NODES).fault == ""
        placement.moves(pair(), TERMS, NODES)
    assert policy.asked == ["place", "explain", "moves"] * 3


def test_a_slot_waits_no_longer_for_a_policy_that_another_thread_asks():
    policy = Slow(0.0)
    placement = GuardedPlacement(policy, spread_placement(), seconds=0.01)
    assert placement._one_at_a_time.acquire()
    assert placement.moves(pair(), TERMS, NODES) == ()
    assert policy.asked == []
