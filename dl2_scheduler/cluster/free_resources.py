"""This module keeps what is free on the nodes while a slot is being filled."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job, Node, Resources, check_fits, resource_names
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot

Amounts = NDArray[np.float64]
NOWHERE = -1
SLACK = 1e-9  # sums of fractions of a resource may miss the whole by rounding


class NodeRule(IntEnum):
    """A `NodeRule` says which node a task goes to, of those where it fits; the lower index where two are equal."""

    SPREAD = 0  # the least used
    PACK = 1  # the most used
    ROUND_ROBIN = 2  # the next after the last
    LEAST_USED_ONLY = 3  # the least used of all, or nowhere: the published code's


@compiled
def fits_on(free: Amounts, node: int, demand: Amounts) -> bool:
    """Return whether a task fits on a node.

    Args:
        free: amounts that are free, (nodes, resources).
        node: its index.
        demand: of the task, (resources,).
    """
    for resource in range(len(demand)):  # noqa: SIM110  # compiled, a generator would be slower
        if demand[resource] > free[node, resource] + SLACK:
            return False
    return True


@compiled
def pick_node(free: Amounts, used: Amounts, demand: Amounts, rule: int, last: int) -> int:
    """Return the index of the node for a task, or NOWHERE.

    Args:
        free: amount, (nodes, resources).
        used: by node, the sum over resources of the part that is in use.
        demand: of the task, (resources,).
        rule: a `NodeRule`.
        last: the node that the last task went to.
    """
    nodes = len(free)
    best = NOWHERE
    for step in range(nodes):
        node = (last + 1 + step) % nodes if rule == NodeRule.ROUND_ROBIN else step
        if rule == NodeRule.PACK:
            better = best == NOWHERE or used[node] > used[best]
        else:
            better = best == NOWHERE or used[node] < used[best]
        if better and (rule == NodeRule.LEAST_USED_ONLY or fits_on(free, node, demand)):
            best = node
            if rule == NodeRule.ROUND_ROBIN:
                break
    if rule == NodeRule.LEAST_USED_ONLY and not fits_on(free, best, demand):
        return NOWHERE
    return best


@compiled
def take(free: Amounts, used: Amounts, capacity: Amounts, node: int, demand: Amounts) -> None:
    """Claim what a task needs on a node; a negative demand gives it back.

    Args:
        free: amounts that are free, (nodes, resources); changed.
        used: by node, the sum over resources of the part that is in use; changed.
        capacity: amounts that nodes have, (nodes, resources).
        node: its index.
        demand: of the task, (resources,).
    """
    for resource in range(free.shape[1]):
        free[node, resource] -= demand[resource]
        if capacity[node, resource] > 0:
            used[node] += demand[resource] / capacity[node, resource]


def vector(amounts: Resources, names: Sequence[str]) -> Amounts:
    """Return amounts in the order of `names`, (len(names) + 1,).

    What a cluster has nothing of at all comes last, so that it fits nowhere.
    """
    row: Amounts = vectors([amounts], names)[0]
    return row


def vectors(each: Sequence[Resources], names: Sequence[str]) -> Amounts:
    """Return a `vector` of each, (len(each), len(names) + 1)."""
    rows = [
        [amounts.get(name, 0.0) for name in names] + [sum([amounts[name] for name in amounts if name not in names])]
        for amounts in each
    ]
    return np.array(rows, dtype=float).reshape(len(each), len(names) + 1)


def dominant_shares(demands: Amounts, capacity: Amounts) -> Amounts:
    """Return the dominant share of each demand, (..., resources), in a cluster of this capacity, (resources,)."""
    total = np.maximum(capacity, 1e-12)
    found: Amounts = np.where(demands > 0, demands / total, 0.0).max(axis=-1)
    return found


class FreeResources:
    """`FreeResources` are the nodes of a snapshot, all free at first, less what jobs have been given of them.

    Args:
        snapshot: the cluster.
        rule: by which tasks find their node.

    Attributes:
        grants: what was given, in order: (job's index, workers, servers).
        least: workers and servers of each job's first grant: its minimum.
        bundles: workers and servers by which a policy that grants both roles together lets each job grow: one of each,
            or one worker, where the job has no servers; see also `next_bundle`.
    """

    def __init__(self, snapshot: Snapshot, rule: NodeRule = NodeRule.SPREAD):
        names = resource_names(snapshot.nodes)
        self.snapshot = snapshot
        self.rule = rule
        self.capacity = vectors([node.capacity for node in snapshot.nodes], names)
        self.free = self.capacity.copy()
        self.used = np.zeros(len(self.free))
        self.grants: list[tuple[int, int, int]] = []
        self.least = [(state.job.min_workers, state.job.min_servers) for state in snapshot.jobs]
        self.bundles = [(1, int(state.job.has_servers)) for state in snapshot.jobs]
        self._last = NOWHERE
        self.demands = (
            list(vectors([state.job.worker for state in snapshot.jobs], names)),
            list(vectors([state.job.server for state in snapshot.jobs], names)),
        )
        self._nodes: tuple[list[list[int]], list[list[int]]] = (
            [[] for _ in snapshot.jobs],
            [[] for _ in snapshot.jobs],
        )

    def workers(self, job: int) -> int:
        """Return how many workers a job has been given, by its index in the snapshot."""
        return len(self._nodes[0][job])

    def servers(self, job: int) -> int:
        """Return how many servers a job has been given, by its index in the snapshot."""
        return len(self._nodes[1][job])

    def give(self, job: int, workers: int, servers: int) -> bool:
        """Give a job more tasks, all or none, and return whether it got them.

        A minimum that the rule finds no place for is packed: what `check_minimum_fits` admits can be given, alone or
        with more at once.

        Args:
            job: its index in the snapshot.
            workers: how many more.
            servers: how many more.

        Returns:
            False where they are over the job's maxima, or do not all fit.
        """
        state = self.snapshot.jobs[job].job
        if self.workers(job) + workers > state.max_workers or self.servers(job) + servers > state.max_servers:
            return False
        if not self._give_all(job, workers, servers):
            return False
        self.grants.append((job, workers, servers))
        return True

    def next_bundle(self, job: int) -> tuple[int, int]:
        """Return the workers and servers by which a job grows next where both roles are granted together.

        They are one of each role of which it has less than its maximum.
        """
        state = self.snapshot.jobs[job].job
        return int(self.workers(job) < state.max_workers), int(self.servers(job) < state.max_servers)

    def give_next(self, job: int) -> bool:
        """Give a job its `next_bundle`, and return whether it got it: it has its maxima, or it does not fit."""
        bundle = self.next_bundle(job)
        return bundle != (0, 0) and self.give(job, *bundle)

    def _give_all(self, job: int, workers: int, servers: int) -> bool:
        """Give a job all of these tasks, or none; return whether it got them.

        The order matters where the one role takes the only place of the other. To pack a minimum can help only where
        each role had room by itself.
        """
        orders = _orders(workers, servers)
        packs = self._may_pack(job, workers, servers)
        free, used = (self.free.copy(), self.used.copy()) if packs else (self.free, self.used)
        least = (workers, servers) == self.least[job]
        for order, alone in zip(orders, (workers, servers), strict=False):
            given = self._give_in_order(job, order, self.rule)
            if given == len(order):
                return True
            packs = packs and (given >= alone or not least)
        if not packs:
            return False
        self.free[:], self.used[:] = free, used  # to the last bit, as `check_minimum_fits` finds an empty cluster
        if least:
            return any(self._give_in_order(job, order, NodeRule.PACK) == len(order) for order in orders)
        return self._give_least_first(job, workers, servers)

    def _may_pack(self, job: int, workers: int, servers: int) -> bool:
        """Return whether a job that has nothing is given its minimum or more, and its minimum could be packed."""
        least = self.least[job]
        first = self.workers(job) == self.servers(job) == 0 and workers >= least[0] and servers >= least[1]
        several = min(least) > 0 and sum(least) > 2
        return first and several and self.rule in (NodeRule.SPREAD, NodeRule.ROUND_ROBIN)

    def _give_least_first(self, job: int, workers: int, servers: int) -> bool:
        """Give a job that has nothing these tasks as a policy does it that lets jobs grow: its minimum, then the rest.

        So a job that was packed and has grown is found to fit again where it is counted as a whole.
        """
        least = self.least[job]
        free, used, last = self.free.copy(), self.used.copy(), self._last
        if not self._give_all(job, *least):
            return False
        if self._give_all(job, workers - least[0], servers - least[1]):
            return True
        for nodes in (self._nodes[0], self._nodes[1]):
            nodes[job].clear()
        self.free[:], self.used[:], self._last = free, used, last
        return False

    def _give_in_order(self, job: int, roles: Sequence[int], rule: NodeRule) -> int:
        """Give a job all of these tasks in this order, or none; return for how many there was room."""
        for given, role in enumerate(roles):
            if not self._give_one(job, role, rule):
                for taken in roles[:given]:
                    self._take_back(job, taken)
                return given
        return len(roles)

    def give_least(self, job: int) -> bool:
        """Give a job that has nothing its whole minimum; see `give`."""
        return self.give(job, *self.least[job])

    def give_together(self, job: int) -> bool:
        """Give a job one worker and one server on one node (the published code's bundle)."""
        state = self.snapshot.jobs[job].job
        if self.workers(job) >= state.max_workers or self.servers(job) >= state.max_servers:
            return False
        node = pick_node(self.free, self.used, self.demands[0][job] + self.demands[1][job], int(self.rule), self._last)
        if node == NOWHERE:
            return False
        self.give_on(job, node)
        return True

    def give_on(self, job: int, node: int) -> None:
        """Give a job its `next_bundle` on this node, where it is known to fit."""
        workers, servers = self.next_bundle(job)
        for role in [0] * workers + [1] * servers:
            self._put(job, role, node)
        self.grants.append((job, workers, servers))

    def _give_one(self, job: int, role: int, rule: NodeRule) -> bool:
        node = pick_node(self.free, self.used, self.demands[role][job], int(rule), self._last)
        if node == NOWHERE:
            return False
        self._put(job, role, node)
        return True

    def _put(self, job: int, role: int, node: int) -> None:
        take(self.free, self.used, self.capacity, node, self.demands[role][job])
        self._nodes[role][job].append(node)
        self._last = node

    def _take_back(self, job: int, role: int) -> None:
        """Take back a job's last task of a role."""
        take(self.free, self.used, self.capacity, self._nodes[role][job].pop(), -self.demands[role][job])

    def allocation(self, reasons: Sequence[str] = ()) -> Allocation:
        """Return what has been given; a job with less than its minimum of a role gets nothing.

        Args:
            reasons: of each job's grant, in the order of the snapshot; none: without.
        """
        grants = {}
        for number, state in enumerate(self.snapshot.jobs):
            workers, servers = self.workers(number), self.servers(number)
            reason = reasons[number] if reasons else ""
            runs = workers >= state.job.min_workers and servers >= state.job.min_servers
            grants[state.job.id] = Grant(workers, servers, reason) if runs else Grant(0, 0, reason)
        return Allocation(grants)


def _orders(workers: int, servers: int) -> list[list[int]]:
    """Return the orders in which tasks may be placed, as roles: either one first; one order where there is one role."""
    return [[0] * workers + [1] * servers, [1] * servers + [0] * workers][: 1 + min(1, workers, servers)]


def least_asked(job: Job) -> Hashable:
    """Return what alone decides whether a job fits some nodes, which takes long to find out where these are thousands:
    its minimum, and what its tasks take.
    """
    demands = (tuple(sorted(demand.items())) for demand in (job.worker, job.server))
    return job.min_workers, job.min_servers, *demands


def check_minimum_fits(job: Job, nodes: Sequence[Node]) -> None:
    """Refuse a job whose minimum does not fit the cluster, even an empty one.

    Raises:
        BadInput: with the minimum, and how many nodes there are.
    """
    room = FreeResources(Snapshot(0, 1.0, tuple(nodes), (JobState(job),)), NodeRule.PACK)
    if not room.give_least(0):
        raise BadInput(
            f"its minimum, {job.min_workers} workers and {job.min_servers} servers, does not fit on the {len(nodes)} "
            "nodes, even if nothing else is there: give less"
        )


def which_fit(jobs: Iterable[Job], nodes: Sequence[Node]) -> Iterator[bool]:
    """Yield of each job whether it `fits`; of those that ask for the same one is tried."""
    found: dict[Hashable, bool] = {}
    for job in jobs:
        asked = least_asked(job)
        if asked not in found:
            found[asked] = fits(job, nodes)
        yield found[asked]


def fits(job: Job, nodes: Sequence[Node]) -> bool:
    """Return whether a job can run with its minimum where nothing else does."""
    try:
        check_fits(job, nodes)
        check_minimum_fits(job, nodes)
    except BadInput:
        return False
    return True
