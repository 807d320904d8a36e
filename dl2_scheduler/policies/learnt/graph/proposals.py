"""This module lets agents propose several ways to place a job, drawn side by side: one product of matrices a task.

For a job's first task an agent looks at all groups of its partition. For the others it looks at those that it ranked
highest then, and at the highest in the rack where the first task went: most of 200 groups are no choice for anybody.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.policies.learnt.graph.agent_inputs import Watched
from dl2_scheduler.policies.learnt.graph.agents import Scorer
from dl2_scheduler.policies.learnt.graph.edge_conv import F32
from dl2_scheduler.policies.placement.draft import missing_tasks

Groups = tuple[list[int], list[int]]
"""Of a job's new workers, and of its new servers."""
_Begun = tuple[int, bool, int, Ints]
"""A partition, whether this is its agent's own choice, the group of the first task, and candidates for the others."""


class Proposals:
    """These `Proposals` are drawn while one placement is made.

    Args:
        watched: the cluster.
        scorer: of the agents.
        rng: draws.
        ranked: groups of a partition, and of a rack, that are looked at for a job's later tasks, for each role; as many
            as it has tasks at least, so that none waits where it fits.
    """

    def __init__(self, watched: Watched, scorer: Scorer, rng: np.random.Generator, ranked: int):
        self._watched, self._scorer, self._rng, self._ranked = watched, scorer, rng, ranked

    def of(self, job: int, pods: Sequence[int], number: int, left: int) -> list[Groups]:
        """Return places for a job, each once, in the order of partitions.

        Args:
            job: index of the job.
            pods: partitions that propose.
            number: ways of each: the first is its agent's own choice, the others are drawn.
            left: jobs that are still to be placed after this one.
        """
        view = self._watched.draft.view
        roles, own_pod = list(missing_tasks(view, job)), view.jobs[job].job.partition
        begun = [each for pod in pods for each in self._begun(job, pod, number, roles, (left, pod != own_pod))]
        if not begun:
            return []
        draws = _Draws(self._watched, job, begun)
        known = self._scorer.known(self._watched, draws.pod, draws.groups)
        for role in roles[1:]:
            scores = self._scorer.of_some(self._watched, known, draws.pod, draws.near(role), draws.about(role, left))
            noise = self._rng.gumbel(size=scores.shape)
            noise[draws.is_first] = 0.0
            draws.take(role, np.where(draws.fits(role), scores + noise, -np.inf))
        found: dict[tuple[tuple[int, ...], ...], Groups] = {}
        for groups in draws.places():
            found.setdefault(tuple(tuple(sorted(each)) for each in groups), groups)
        return list(found.values())

    def _begun(self, job: int, pod: int, number: int, roles: Sequence[int], turn: tuple[int, bool]) -> list[_Begun]:
        """Return where a partition may put a job's first task; nothing where there is no room.

        Args:
            job: index of the job.
            pod: the partition.
            number: see `of`.
            roles: of the job's tasks, in order.
            turn: see `Watched.about`.
        """
        watched, role, most = self._watched, roles[0], max(self._ranked, len(roles))
        inputs, graph, draft = watched.task(pod, job, role, *turn), watched.graphs.pods[pod], watched.draft
        if not inputs.fits.any():
            return []
        others = draft.fits(job, SERVER if role == WORKER else WORKER, graph.groups)
        open_ = np.flatnonzero(inputs.fits | others)
        mine = np.array([pod])
        known = self._scorer.known(watched, mine, open_[None])
        scores = self._scorer.of_some(watched, known, mine, inputs.near[open_][None], inputs.task[None])[0]
        fits, rack = [inputs.fits[open_], others[open_]], graph.rack[open_]
        noise = self._rng.gumbel(size=(number, len(open_)))
        noise[0] = 0.0
        firsts = np.where(fits[0], scores + noise, -np.inf).argmax(axis=1).tolist()
        everywhere = [_highest(scores, each, most) for each in fits]
        candidates = {}
        for first in set(firsts):
            here = [_highest(scores, each & (rack == rack[first]), most) for each in fits]
            candidates[first] = open_[np.unique(np.concatenate([*everywhere, *here, [first]]))]
        return [(pod, row == 0, int(open_[first]), candidates[first]) for row, first in enumerate(firsts)]


def _highest(scores: Floats, which: NDArray[np.bool_], most: int) -> Ints:
    """Return the indices of the highest of some scores, in no order.

    Args:
        scores: of all.
        which: of these.
        most: how many.
    """
    found = np.flatnonzero(which)
    return found if len(found) <= most else found[np.argpartition(-scores[found], most)[:most]]


class _Draws:
    """These `_Draws` are proposals that are being made, a row each.

    Args:
        watched: the cluster.
        job: index of the job.
        begun: see `Proposals._begun`.

    Attributes:
        pod: of each, (rows,).
        is_first: which are their agent's own choice, (rows,).
        groups: candidates, of the partition's, padded with the first, (rows, most).
    """

    def __init__(self, watched: Watched, job: int, begun: Sequence[_Begun]):
        self._watched, self._job = watched, job
        self.pod = np.array([pod for pod, *_ in begun])
        self.is_first = np.array([own for _, own, *_ in begun])
        most = max(len(each) for *_, each in begun)
        self.groups = np.stack([np.concatenate([each, np.repeat(each[-1:], most - len(each))]) for *_, each in begun])
        self._real = np.arange(most) < np.array([len(each) for *_, each in begun])[:, None]
        pods = [watched.graphs.pods[pod] for pod in self.pod]
        pairs = list(zip(pods, self.groups, strict=True))
        self._where = np.stack([[own, pod.node[own], pod.rack[own]] for pod, own in pairs], axis=1)  # (3, rows, most)
        every = np.stack([pod.groups[own] for pod, own in pairs])
        draft = watched.draft
        self._every, self._free = every, draft.free[every]
        self._capacity = np.maximum(draft.view.machines.capacity[every], 1.0)
        self._may = [draft.view.may(job, role)[every] for role in (WORKER, SERVER)]
        self._left = {pod: watched.left_in(pod) for pod in set(self.pod.tolist())}
        self._alive = np.ones(len(begun), dtype=np.bool_)
        self._chosen: list[tuple[int, Ints]] = []  # role, and place of the candidate in each row
        first = np.array([each for _, _, each, _ in begun])
        role = next(missing_tasks(draft.view, job))
        self._take(role, (self.groups == first[:, None]).argmax(axis=1))

    def fits(self, role: int) -> NDArray[np.bool_]:
        """Return whether a task of a role fits each candidate, (rows, most)."""
        demand = self._watched.draft.view.demand[self._job, role]
        room = np.maximum(self._free, 0.0) >= demand - SLACK
        found: NDArray[np.bool_] = room[..., 0] & room[..., 1] & self._may[role] & self._real & self._alive[:, None]
        return found

    def near(self, role: int) -> F32:
        """Return what of the job is near each candidate, (rows, most, NEAR): see `agent_inputs.NEAR`."""
        rows, most = self.groups.shape
        counts = np.zeros((3, rows, most, 2))
        total = np.zeros(2)
        for own, place in self._chosen:
            at = self._where[:, np.arange(rows), place]
            counts[..., own] += self._where == at[..., None]
            total[own] += 1.0
        group, node, rack = counts
        after = (self._free - self._watched.draft.view.demand[self._job, role]) / self._capacity
        parts = [group, node - group, rack - node, total - rack, after]
        found: F32 = np.concatenate(parts, axis=2).astype(np.float32)
        return found

    def about(self, role: int, left: int) -> F32:
        """Return what an agent reads of the task and its job, (rows, task_width).

        Args:
            role: of the task.
            left: see `Proposals.of`.
        """
        placed = [sum(own == each for own, _ in self._chosen) for each in (WORKER, SERVER)]
        view = self._watched.draft.view
        own_pod, found = view.jobs[self._job].job.partition, dict[int, F32]()
        taken = np.array(placed) @ view.demand[self._job]
        for pod, (part, whole) in self._left.items():
            turn = left, pod != own_pod
            counts = placed[WORKER], placed[SERVER]
            found[pod] = self._watched.about(self._job, role, counts, turn, part - taken / whole)
        return np.stack([found[pod] for pod in self.pod.tolist()])

    def take(self, role: int, scores: Floats) -> None:
        """Give a task the best candidate of each row; a row without any ends."""
        self._alive &= np.isfinite(scores).any(axis=1)
        self._take(role, scores.argmax(axis=1))

    def _take(self, role: int, place: Ints) -> None:
        self._chosen.append((role, place))
        rows = np.arange(len(place))
        same = self.groups == self.groups[rows, place][:, None]  # the padding, too
        self._free -= same[..., None] * self._watched.draft.view.demand[self._job, role]

    def places(self) -> list[Groups]:
        """Return the rows that have a place for every task."""
        return [
            (
                [int(self._every[row, place[row]]) for own, place in self._chosen if own == WORKER],
                [int(self._every[row, place[row]]) for own, place in self._chosen if own == SERVER],
            )
            for row in np.flatnonzero(self._alive)
        ]
