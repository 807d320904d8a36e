"""This module shares the links of a network among flows, max-min fairly; rates and capacities are Gb/s.

A flow is what a worker and a server exchange; it is full duplex, as links are (`cluster.hardware.topology`). What sends
for a task, one thread, is shared by the task's flows, too: a link more, of a capacity of its own.
"""

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.topology import NO_LINK, Routes

Flags = NDArray[np.bool_]

MB_A_SECOND = 125.0
"""MB/s in one Gb/s: profiles state megabytes a second, networks gigabits."""


@compiled
def max_min(capacity: Floats, start: Ints, links: Ints, cap: Floats) -> Floats:
    """Return the rate of each flow: none can get more but from one that has no more than itself, (flows,).

    All flows rise together until one is at its cap, or a link is full; these stay, and the others go on rising.

    Args:
        capacity: of each link, (links,).
        start: where the links of each flow begin in `links`, as in `Routes`, (flows + 1,).
        links: the links of all flows.
        cap: what each flow gets at most, (flows,); infinite: only its links limit it.

    Raises:
        ValueError: a capacity or a cap is not a number.
    """
    if np.isnan(capacity).any() or np.isnan(cap).any():
        raise ValueError("a capacity or a cap of flows is not a number")
    return _filled(capacity, start, links, cap)


@compiled
def _filled(capacity: Floats, start: Ints, links: Ints, cap: Floats) -> Floats:
    """Settle in each round what no other flow can change any more: many links at once, not the fullest alone.

    What a flow could get is the least of its cap and its links' equal shares. A share only grows as others are settled
    below it, so two kinds of flow are settled: one that could get its cap, and all those of a link from whose share
    none of them is held back elsewhere.
    """
    rates = np.zeros(len(cap))
    left, sharing = capacity.copy(), np.zeros(len(capacity), dtype=np.int64)
    for link in links:
        sharing[link] += 1
    used, rising = np.flatnonzero(sharing), np.arange(len(cap))
    share, full = np.zeros(len(capacity)), np.zeros(len(capacity), dtype=np.bool_)
    while len(rising) > 0:
        count = 0
        for link in used:
            if sharing[link] > 0:
                share[link], full[link] = max(left[link], 0.0) / sharing[link], True
                used[count] = link
                count += 1
        used = used[:count]
        for flow in rising:
            rates[flow] = _reachable(share, full, links[start[flow] : start[flow + 1]], cap[flow])
        count = 0
        for flow in rising:
            taken = links[start[flow] : start[flow + 1]]
            if rates[flow] < cap[flow] and not _any(full, taken):
                rising[count] = flow
                count += 1
            else:
                _take(left, sharing, taken, rates[flow])
        rising = rising[:count]
    return rates


@inlined
def _reachable(share: Floats, full: Flags, links: Ints, cap: float) -> float:
    """Return what a flow could get now; its links that offer more than that will not be full by their shares."""
    least = cap
    for link in links:
        least = min(least, share[link])
    for link in links:
        if share[link] > least:
            full[link] = False
    return least


@inlined
def _any(flags: Flags, links: Ints) -> bool:
    for link in links:  # noqa: SIM110  # compiled, a generator would be slower
        if flags[link]:
            return True
    return False


@inlined
def _take(left: Floats, sharing: Ints, links: Ints, rate: float) -> None:
    for link in links:
        sharing[link] -= 1
        if rate < np.inf:  # else the link is infinite, too, and stays so
            left[link] -= rate


@compiled
def equal_share(capacity: Floats, routes: Routes, flows: Floats) -> Floats:
    """Return the rate of each flow where a link gives all its flows alike, whether they can use it or not, (flows,).

    Args:
        capacity: of each link, (links,).
        routes: of the flows that are asked for.
        flows: how many take each link, (links,).
    """
    rates = np.full(len(routes.start) - 1, np.inf)
    for flow in range(len(rates)):
        for link in routes.links[routes.start[flow] : routes.start[flow + 1]]:
            rates[flow] = min(rates[flow], capacity[link] / flows[link])
    return rates


@compiled
def touched(capacity: Floats, start: Ints, links: Ints, cap: Floats, changed: Flags) -> Flags:
    """Return which flows' rates a change may alter, (flows,): those that hang together with it over links.

    A link that is not full even where all its flows are at their caps passes nothing on. Give the flows of before the
    change and of after it together; the rates of the touched ones that are left are those of `max_min` on them alone.

    Args:
        capacity: of each link, (links,).
        start: where the links of each flow begin in `links`, (flows + 1,).
        links: the links of all flows.
        cap: what each flow gets at most, (flows,).
        changed: which flows have come, go, or have another cap (then its higher one is given), (flows,).
    """
    wanted = np.zeros(len(capacity))
    for flow in range(len(cap)):
        for link in links[start[flow] : start[flow + 1]]:
            wanted[link] += cap[flow]
    tight = wanted > capacity
    joined = np.arange(len(capacity))  # a forest: links of one tree hang together
    first = np.full(len(cap), NO_LINK)  # a tight link of each flow
    for flow in range(len(cap)):
        for link in links[start[flow] : start[flow + 1]]:
            if tight[link]:
                if first[flow] == NO_LINK:
                    first[flow] = link
                joined[_root(joined, link)] = _root(joined, first[flow])
    reached, hit = changed.copy(), np.zeros(len(capacity), dtype=np.bool_)
    for flow in np.flatnonzero(changed & (first != NO_LINK)):
        hit[_root(joined, first[flow])] = True
    for flow in np.flatnonzero(first != NO_LINK):
        reached[flow] |= hit[_root(joined, first[flow])]
    return reached


@inlined
def _root(joined: Ints, link: int) -> int:
    while joined[link] != link:
        joined[link] = joined[joined[link]]
        link = joined[link]
    return link


@compiled
def only(start: Ints, links: Ints, flows: Ints) -> tuple[Ints, Ints]:
    """Return the routes of some flows alone.

    Args:
        start: where the links of each flow begin in `links`, (all flows + 1,).
        links: the links of all flows.
        flows: the flows that are wanted, (flows,).
    """
    begin = np.zeros(len(flows) + 1, dtype=np.int64)
    begin[1:] = np.cumsum(start[flows + 1] - start[flows])
    wanted = np.empty(begin[-1], dtype=np.int64)
    for number, flow in enumerate(flows):
        wanted[begin[number] : begin[number + 1]] = links[start[flow] : start[flow + 1]]
    return begin, wanted


@compiled
def with_senders(capacity: Floats, routes: Routes, senders: Ints, gbps: Floats) -> tuple[Floats, Routes]:
    """Return capacities and routes with what sends for tasks as links after the network's own.

    Args:
        capacity: of each link of the network, (links,).
        routes: the links of each flow.
        senders: what sends for each flow, indices of `gbps`, (flows, n): the worker's thread and the server's, say.
        gbps: capacity of each sender, (senders,).
    """
    flows, each = senders.shape
    start, links = routes.start + each * np.arange(flows + 1), np.empty(len(routes.links) + senders.size, np.int64)
    for flow in range(flows):
        at = start[flow]
        for link in routes.links[routes.start[flow] : routes.start[flow + 1]]:
            links[at] = link
            at += 1
        for sender in senders[flow]:
            links[at] = len(capacity) + sender
            at += 1
    return np.concatenate((capacity, gbps)), Routes(start, links)
