"""The compiled loop of the learnt policy, against a slow one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import NOWHERE, NodeRule, pick_node, take
from dl2_scheduler.policies.learnt import fill
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, NEVER, SERVER, STOP, WORKER, Tasks
from dl2_scheduler.policies.learnt.features import kinds as distinct
from dl2_scheduler.policies.learnt.scores import Scores, score

HIDDEN = 5


def scores_of(jobs, most, seed, stop=-9.0):
    random = np.random.default_rng(seed)

    def drawn(*shape):
        return random.normal(size=shape).astype(np.float32)

    counts = most + 1, HIDDEN
    return Scores(
        drawn(jobs, HIDDEN), drawn(*counts), drawn(*counts), drawn(HIDDEN), np.abs(drawn(jobs, 2)),
        drawn(HIDDEN, HIDDEN), drawn(HIDDEN), drawn(HIDDEN, ACTIONS), drawn(ACTIONS), drawn(jobs, ACTIONS), stop,
    )  # fmt: skip


def row(scores, job, workers, servers):
    found = np.empty(ACTIONS, dtype=np.float32)
    score(scores, job, workers, servers, np.empty(HIDDEN, np.float32), np.empty(HIDDEN, np.float32), found)
    return found


def tasks_of(demands, most, runs=None, least=None):
    """Of jobs, each with a (worker, server) demand."""
    kinds, number = distinct(np.array(demands, float))
    ran = np.zeros(len(demands), dtype=bool) if runs is None else np.array(runs)
    least = np.ones((len(demands), 2), dtype=np.int64) if least is None else np.array(least)
    return Tasks(kinds, number, least, np.array(most), ran)


def filled(tasks, scores, capacity, forced=(), rule=NodeRule.SPREAD):
    done = fill.filled(tasks, scores, capacity, int(rule), np.array(forced, dtype=np.int64))
    return done.actions.tolist(), done.closed, done.counts


def test_a_row_is_the_network():
    scores = scores_of(2, 4, 1)
    share = np.log1p(max(3 * scores.share[1, 0], 2 * scores.share[1, 1]))
    first = scores.base[1] + scores.by_workers[3] + scores.by_servers[2] + share * scores.by_share
    second = np.maximum(first, 0) @ scores.hidden + scores.hidden_bias
    wanted = np.maximum(second, 0) @ scores.out + scores.out_bias + scores.priority[1]
    assert np.allclose(row(scores, 1, 3, 2), wanted, atol=1e-5)


demand = st.tuples(st.sampled_from([0.0, 1.0, 2.0, 3.0]), st.sampled_from([0.0, 1.0, 4.0])).filter(any)


@settings(deadline=None)
@given(
    st.lists(st.tuples(demand, demand), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from([0.0, 4.0, 8.0]), st.sampled_from([0.0, 4.0])), min_size=1, max_size=4),
    st.integers(0, 99),
    st.sampled_from(NodeRule),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=4, max_size=4),
)
def test_whatever_it_does_fits(demands, capacity, seed, rule, least):
    tasks = tasks_of(demands, [(3, 2)] * len(demands), least=least[: len(demands)])
    actions, closed, counts = filled(tasks, scores_of(len(demands), 3, seed), np.array(capacity), rule=rule)
    taken = sum((counts[job, 0] * np.array(worker) + counts[job, 1] * np.array(server))
                for job, (worker, server) in enumerate(demands))  # fmt: skip
    assert (taken <= np.sum(capacity, axis=0) + 1e-9).all()
    assert (counts <= tasks.most).all()
    assert ((counts >= tasks.least).all(axis=1) | (counts == 0).all(axis=1)).all(), "its minimum or nothing"
    for inference, action in enumerate(actions):
        if action == STOP:
            assert inference == len(actions) - 1
        else:
            assert closed[action // ACTIONS, action % ACTIONS] > inference


def test_the_best_is_taken_each_time_and_stopping_ends_it():
    scores = scores_of(2, 3, 3, stop=-9.0)
    tasks = tasks_of([((1, 0), (1, 0))] * 2, [(3, 3)] * 2)
    actions, closed, _ = filled(tasks, scores, np.array([[99.0, 0.0]]))
    counts = np.zeros((2, 2), dtype=int)
    for action in actions:
        rows = np.stack([row(scores, job, *counts[job]) for job in range(2)])
        for job in range(2):
            if not counts[job].any():
                rows[job, [WORKER, SERVER]] = -np.inf
            rows[job, [WORKER, BOTH]] = np.where(counts[job, 0] == 3, -np.inf, rows[job, [WORKER, BOTH]])
            rows[job, [SERVER, BOTH]] = np.where(counts[job, 1] == 3, -np.inf, rows[job, [SERVER, BOTH]])
        assert action == (rows.argmax() if rows.max() >= -9 else STOP)
        if action != STOP:
            counts[action // ACTIONS] += [action % ACTIONS != SERVER, action % ACTIONS != WORKER]
    assert (closed == NEVER).all(), "there was room for all"
    assert filled(tasks, scores._replace(stop=1e9), np.array([[99.0, 0.0]]))[0] == [STOP]


def test_a_job_that_runs_is_not_forgotten_while_there_is_room():
    scores = scores_of(2, 2, 7, stop=50.0)
    demands = [((1, 0), (1, 0))] * 2
    roomy = np.array([[9.0, 0.0]])
    assert filled(tasks_of(demands, [(2, 2)] * 2), scores, roomy)[0] == [STOP]
    actions, _, counts = filled(tasks_of(demands, [(2, 2)] * 2, [False, True]), scores, roomy)
    assert actions[-1] == STOP
    assert counts[1].tolist() == [1, 1]
    assert filled(tasks_of(demands, [(2, 2)] * 2, [False, True]), scores, np.array([[1.0, 0.0]]))[0] == []


def test_both_roles_may_lie_on_two_nodes():
    tasks = tasks_of([((3, 0), (2, 0))], [(2, 2)])
    scores = scores_of(1, 2, 1)
    assert filled(tasks, scores, np.array([[4.0, 0.0], [2.0, 0.0]]))[2].tolist() == [[1, 1]]
    assert filled(tasks, scores, np.array([[2.0, 0.0], [4.0, 0.0]]))[2].tolist() == [[1, 1]], "the worker has one node"
    assert filled(tasks, scores, np.array([[4.0, 0.0], [1.0, 0.0]]))[2].tolist() == [[0, 0]]


def test_a_gang_is_packed_where_the_rule_finds_no_places():
    """Two workers of 2 and two servers of 3: each rule but to pack puts a server on each node."""
    tasks = tasks_of([((2, 0), (3, 0))], [(2, 2)], [True], [(2, 2)])
    for rule in (NodeRule.SPREAD, NodeRule.PACK, NodeRule.ROUND_ROBIN):
        for stop in (-9.0, 9.0):  # by a grant, or by a trial before the network stops
            for capacity in ([[6.0, 0.0], [4.0, 0.0]], [[4.0, 0.0], [6.0, 0.0]]):
                scores = scores_of(1, 2, 1, stop)
                assert filled(tasks, scores, np.array(capacity), rule=rule)[2].tolist() == [[2, 2]]
            assert filled(tasks, scores, np.array([[5.0, 0.0], [5.0, 0.0]]), rule=rule)[2].tolist() == [[2, 2]]
            assert filled(tasks, scores, np.array([[7.0, 0.0], [2.5, 0.0]]), rule=rule)[2].tolist() == [[0, 0]]


def test_what_a_teacher_does_is_done_but_for_what_does_not_fit():
    tasks = tasks_of([((1, 0), (1, 0)), ((5, 0), (1, 0))], [(2, 2)] * 2)
    forced = [BOTH, ACTIONS + BOTH, WORKER, SERVER, SERVER]
    actions, closed, counts = filled(tasks, scores_of(2, 2, 1), np.array([[4.0, 0.0]]), forced=forced)
    assert actions == [BOTH, WORKER, SERVER]
    assert counts.tolist() == [[2, 2], [0, 0]]
    assert closed[1, BOTH] == 0
    assert filled(tasks, scores_of(2, 2, 1), np.array([[9.0, 0.0]]), forced=[BOTH])[0] == [BOTH, STOP]


def test_a_stop_that_it_may_not_make_is_no_lesson():
    tasks = tasks_of([((1, 0), (1, 0))] * 2, [(2, 2)] * 2, [True, False])
    roomy = np.array([[9.0, 0.0]])
    assert filled(tasks, scores_of(2, 2, 1), roomy, forced=[ACTIONS + BOTH, STOP])[0] == [ACTIONS + BOTH]
    assert filled(tasks, scores_of(2, 2, 1), roomy, forced=[BOTH, STOP])[0] == [BOTH, STOP]


class SlowSlot:
    """`fill`, looking at every job and every node for every grant."""

    def __init__(self, tasks, scores, capacity, rule):
        self.tasks, self.scores, self.capacity, self.rule = tasks, scores, capacity, int(rule)
        self.free, self.used, self.last = capacity.copy(), np.zeros(len(capacity)), NOWHERE
        self.counts = np.zeros((len(tasks.kind), 2), dtype=int)
        self.closed = np.full((len(tasks.kind), ACTIONS), NEVER)

    def fill(self):
        actions = []
        while len(actions) <= self.tasks.most.sum():
            for job, action in np.argwhere(self.closed == NEVER):
                if not self.room(job, action):
                    self.closed[job, action] = len(actions)
            scored = [
                (row(self.scores, job, *self.counts[job])[action], -job, -action)
                for job in range(len(self.counts))
                for action in range(ACTIONS)
                if self.may(job, action)
            ]
            if not scored:
                break
            best, job, action = max(scored)
            waits = self.tasks.runs & (self.counts[:, 0] == 0) & (self.closed[:, BOTH] == NEVER)
            if self.scores.stop > best:
                if not waits.any():
                    return [*actions, STOP]
                waiting = int(waits.argmax())
                before = self.free.copy(), self.used.copy(), self.last
                gang = self.tasks.least[waiting].sum() > 2  # of others it is known without a trial
                fits = not gang or self.place(waiting, BOTH)
                self.free, self.used, self.last = before
                if not fits:
                    self.closed[waiting, BOTH] = len(actions)
                    continue
            if self.place(-job, -action):
                actions.append(-job * ACTIONS - action)
                first = not self.counts[-job].any()
                self.counts[-job] += self.tasks.least[-job] if first else [-action != SERVER, -action != WORKER]
            else:
                self.closed[-job, -action] = len(actions)
        return actions

    def may(self, job, action):
        after = self.counts[job] + [action != SERVER, action != WORKER]
        first = action == BOTH or self.counts[job].any()
        return self.closed[job, action] == NEVER and first and (after <= self.tasks.most[job]).all()

    def room(self, job, action):
        worker, server, _ = fits = [(self.free >= self.demand(job, role) - 1e-9).all(axis=1) for role in range(ACTIONS)]
        on_two = action == BOTH and worker.any() and server.any() and (worker | server).sum() > 1
        return fits[action].any() or on_two

    def demand(self, job, role):
        return self.tasks.demands[self.tasks.kind[job, role]]

    def place(self, job, action):
        workers, servers = (1, 1) if self.counts[job].any() else self.tasks.least[job]
        gang = [WORKER] * workers, [SERVER] * servers
        orders = [gang[0] + gang[1], gang[1] + gang[0]] if action == BOTH else [[action]]
        tries = [(self.rule, order) for order in orders]
        if len(orders) == 2 and workers + servers > 2 and self.rule in (NodeRule.SPREAD, NodeRule.ROUND_ROBIN):
            tries += [(NodeRule.PACK, order) for order in orders]
        for rule, order in tries:
            taken, last = [], self.last
            for demand in (self.demand(job, role) for role in order):
                node = pick_node(self.free, self.used, demand, int(rule), last)
                if node == NOWHERE:
                    break
                take(self.free, self.used, self.capacity, node, demand)
                taken.append((node, demand))
                last = node
            else:
                self.last = last
                return True
            if not taken and workers == servers == 1:  # no node for the one by itself
                return False
            for node, demand in taken:
                take(self.free, self.used, self.capacity, node, -demand)
        return False


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.tuples(demand, demand), min_size=1, max_size=3),
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 999),
    st.booleans(),
    st.sampled_from([-9.0, 0.0, 1.0]),
    st.sampled_from(NodeRule),
    st.booleans(),
)
def test_nothing_is_overlooked(demands, jobs, nodes, seed, equal, stop, rule, gangs):
    """The same grants as by looking at everything each time; `equal`: many scores are."""
    random = np.random.default_rng(seed)
    own = [demands[number] for number in random.integers(0, len(demands), jobs)]
    most, runs = random.integers(1, 4, (jobs, 2)), random.random(jobs) < 0.3
    tasks = tasks_of(own, most, runs, random.integers(1, most + 1) if gangs else None)
    scores = scores_of(jobs, 3, seed, stop)
    if equal:
        ties = random.integers(0, 2, (jobs, ACTIONS)).astype(np.float32)
        scores = scores._replace(out=scores.out * 0, out_bias=scores.out_bias * 0, priority=ties)
    capacity = np.stack([random.choice([0.0, 3.0, 4.0], nodes), random.choice([0.0, 4.0], nodes)], axis=1)
    slow = SlowSlot(tasks, scores, capacity, rule)
    wanted = slow.fill()
    actions, closed, counts = filled(tasks, scores, capacity, rule=rule)
    assert actions == wanted
    assert counts.tolist() == slow.counts.tolist()
    assert closed.tolist() == slow.closed.tolist()
