"""A `GroupExchange` makes a worker's steps with the members of its configuration, and agrees with them after a switch.

All of it runs on the script's thread, which waits for collectives on the group's own thread.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from elastic_ps.core.configuration import ConfigId, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import JobEnded, ProtocolError
from elastic_ps.torch.allreduce.agreement import BEGINS, HeldVersion, agree, checked
from elastic_ps.torch.allreduce.following.shadow_feed import ShadowFeed
from elastic_ps.torch.allreduce.following.shadow_follower import ShadowFollower
from elastic_ps.torch.allreduce.group import Collective, WorkerGroup
from elastic_ps.torch.allreduce.group_state import PATIENCE_SECONDS, Following
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.record import StepRecord
from elastic_ps.torch.allreduce.replica import Replica
from elastic_ps.torch.allreduce.step_buffers import StepBuffers, is_in
from elastic_ps.torch.allreduce.transfer import (
    give_record,
    give_state,
    install,
    state_of,
    take_record,
    take_state,
    told_of,
)
from elastic_ps.worker.script.data_position import StepPart
from elastic_ps.worker.wire.push_exchange import roster
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_FIXED = 4
"""The first numbers that each member gathers in a step: version, samples, and its slice [low, high)."""


class GroupChanged(Exception):
    """The group does not count any more, or has failed: another configuration is in force, or will be."""


class GroupExchange:
    """A `GroupExchange` holds the replica of this worker at the version of the members.

    Args:
        node: this worker.
        replica: its model and optimizer.
    """

    def __init__(self, node: GroupNode, replica: Replica):
        self._node = node
        self._replica = replica
        self._gathering: tuple[int, Collective] | None = None  # an agreement's, by the generation it is of
        self._buffers = StepBuffers(replica.layout, self._is_used)
        self._suspended = 0.0  # seconds that the agreement under way has taken from the script so far
        self._last: StepRecord | None = None  # kept until the next one: a member may lack it
        self._first = True  # the next step is the first of a configuration
        node.feeds.begin(
            lambda shadow: ShadowFeed(shadow, replica, lambda: told_of(node), lambda: node.held, node.feeds)
        )

    def follow(self, following: Following) -> None:
        """Follow a member, to join; see `ShadowFollower.follow`."""
        self._node.proven = False
        ShadowFollower(self._node, self._node.membership, self._replica).follow(following)

    def begin_agreement(self) -> None:
        """Tell all members what this one holds, and go on: the next step waits for what they hold."""
        node, started = self._node, time.monotonic()
        with node.changed:
            node.check()
            generation = node.generation
            group = node.group
        self._gather(group, generation)
        self._suspended += time.monotonic() - started

    def run(self, part: StepPart, spec: DataSpec) -> bool:
        """Make the step of `part`; return False where other workers share it now, and it must be computed again.

        Raises:
            JobEnded: the job, or this worker's part in it, is over.
        """
        node, version = self._node, self._node.held
        while node.held == version:
            with node.changed:
                node.check()
                fresh, shared, generation = node.fresh, roster(node.configuration), node.generation
            if fresh:
                self.settle()
            elif shared != part.roster:
                return False
            else:
                try:
                    record = self._reduce(part, spec, generation)
                except GroupChanged as change:
                    self._await_news(generation, change)
                else:
                    self._apply(record)
        reached = time.monotonic()
        if self._first:  # a plan is committed when all workers have made a step behind its clock
            self._first = False
            node.session.report_soon()
        node.membership.step_ended(reached)
        return True

    def settle(self) -> None:
        """Agree with all members of the configuration in force on one version, and come to hold it."""
        node = self._node
        started = time.monotonic()
        while True:
            with node.changed:
                node.check()
                generation, number = node.generation, node.standing.config_id
            try:
                self._agree(generation)
                break
            except GroupChanged as change:
                self._await_news(generation, change)
        self._first = True
        with node.changed:
            node.fresh = node.generation != generation
        suspended, self._suspended = self._suspended + time.monotonic() - started, 0.0
        node.session.acknowledge(pb.SWITCHED, number, node.version, suspended * 1000)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _agree(self, generation: int) -> None:
        node, replica = self._node, self._replica
        group = self._group(generation)
        gathered = self._await(self._gather(group, generation), generation)
        holdings = checked([HeldVersion.of(numbers) for numbers in gathered])
        found = agree(holdings)
        rank = group.rank
        if node.held == BEGINS and rank == found.giver:
            node.ledger.begin(f"workers.{group.number.term}", ())
            node.held = found.version
        if found.records:
            self._pass_record(group, generation, found.giver, rank in found.records)
        if found.states:
            if rank == found.giver:
                packed = state_of(replica, node)  # here, as this thread may go on before the group's thread is done
                self._collect(group, generation, lambda: give_state(group, packed))
            else:
                taken = self._collect(group, generation, lambda: take_state(group, found.giver))
                if rank in found.states:
                    if node.held == found.version:
                        log.warning(
                            "this worker has followed to other parameters than the members hold: it takes theirs"
                        )
                    with node.feeds.updating():
                        node.held = install(taken, replica, node)
                    self._last = None
                    node.saver.reached()
        if node.held != found.version:
            raise ProtocolError(f"version {node.held} after an agreement on {found.version}")
        # What the agreement has brought about is not settled yet: its giver may die before it has given to all.
        node.ledger.settle(min((each.held for each in holdings if each.held >= 0), default=0))
        node.proven = True

    def _gather(self, group: WorkerGroup, generation: int) -> Collective:
        """Return the collective that begins an agreement, begun once; who follows this member has all then."""
        if self._gathering is None or self._gathering[0] != generation:
            node, last = self._node, self._last
            node.feeds.end(node.configuration.ranks)
            keeps = last is not None and last.version == node.held - 1
            own = HeldVersion(node.held, keeps, node.proven, self._replica.fingerprint())
            self._gathering = generation, group.submit(lambda: group.gather(own.told()))
        return self._gathering[1]

    def _pass_record(self, group: WorkerGroup, generation: int, giver: int, lacks: bool) -> None:
        """Give the last step's record to those who lack it; everybody takes it, as a broadcast is to all.

        Args:
            group: of the members.
            generation: in which it is in force.
            giver: its rank.
            lacks: this worker does.
        """
        layout = self._replica.layout
        if group.rank == giver:
            last = self._last
            assert last is not None
            self._collect(group, generation, partial(give_record, group, last))
            return
        record = self._collect(group, generation, lambda: take_record(group, giver, layout))
        if lacks:
            self._apply(record)

    def _reduce(self, part: StepPart, spec: DataSpec, generation: int) -> StepRecord:
        """Sum the gradients of all members, in the order of ranks."""
        node, replica = self._node, self._replica
        samples, mean = len(part.positions), spec.loss == "mean"
        bounds = [node.held, samples, part.positions.start, part.positions.stop]

        group = self._group(generation)
        own, sums = self._buffers.of_step(group.size)
        present = replica.contribute(own, samples, float(samples) if mean else 1.0)
        told = [*map(float, bounds), *map(float, present), *replica.numbers]

        def body() -> list[list[float]]:
            gathered = group.gather(told)
            for dtype, buffer in own.items():
                group.sum_in_rank_order(buffer, sums[dtype])
            return gathered

        gathered = self._collect(group, generation, body)
        if {int(numbers[0]) for numbers in gathered} != {node.held}:
            raise ProtocolError(f"members made one step at versions {[int(numbers[0]) for numbers in gathered]}")
        total = int(sum(numbers[1] for numbers in gathered))
        replica.normalise(sums, total, (1.0 if mean else spec.global_batch) / total)
        count = len(replica.parameters)
        flags = [numbers[_FIXED : _FIXED + count] for numbers in gathered]
        anybody = tuple(any(flags[rank][each] for rank in range(len(flags))) for each in range(count))
        return StepRecord(
            node.held, sums, anybody, tuple(gathered[0][_FIXED + count :]), self._entry(group.number, part, gathered)
        )

    def _entry(self, number: ConfigId, part: StepPart, gathered: list[list[float]]) -> pb.LedgerEntry:
        """Return what the ledger is told of a step.

        Args:
            number: of the configuration that made it.
            part: of the step.
            gathered: by rank; each member has said which positions it contributed.
        """
        node = self._node
        assert part.place is not None
        assert part.roster is not None
        slices = [
            pb.Slice(worker=worker, low=int(numbers[2]), high=int(numbers[3]))
            for worker, numbers in zip(part.roster, gathered, strict=True)
            if numbers[1]
        ]
        return pb.LedgerEntry(
            term=number.term,
            number=number.number,
            version=node.held,
            runs=[0, len(node.model.blocks)],
            epoch=part.place.epoch,
            step=part.place.step,
            slices=slices,
        )

    def _apply(self, record: StepRecord) -> None:
        """Go to the next version by a record; whoever made one more step had all members' contributions to it."""
        node = self._node
        with node.feeds.updating(record):
            self._replica.apply(record)
            self._last = record
            node.ledger.settle(record.version)
            node.ledger.append(record.entry)
            node.held = record.version + 1
        node.saver.reached()

    def _group(self, generation: int) -> WorkerGroup:
        """Return the group in force.

        Raises:
            GroupChanged: another configuration came into force.
        """
        node = self._node
        with node.changed:
            if node.generation != generation:
                raise GroupChanged("another configuration is in force")
            return node.group

    def _collect(self, group: WorkerGroup, generation: int, body: Callable[[], Any]) -> Any:
        """Run a collective; a result that has come counts, whatever has changed meanwhile.

        What `body` uses is left to it, or does not change: where this thread goes on before it has ended, it may yet
        end at other members.

        Args:
            group: of the members.
            generation: in which it is in force.
            body: calls the group's operations, on the group's thread.

        Raises:
            GroupChanged: it has failed, or another configuration came into force before it ended.
        """
        return self._await(group.submit(body), generation)

    def _await(self, collective: Collective, generation: int) -> Any:
        """Wait for a collective; see `_collect`."""
        node = self._node
        node.progress.exchanging = True
        node.wait(lambda: collective.done or node.generation != generation, self._lacking)
        node.progress.exchanging = False
        if not collective.done or collective.error is not None:
            self._buffers.abandon()  # gloo may use it yet
        if not collective.done:
            raise GroupChanged("another configuration is in force")
        if isinstance(collective.error, RuntimeError):
            raise GroupChanged(str(collective.error).splitlines()[0])
        if collective.error is not None:
            raise collective.error
        return collective.value

    def _is_used(self, memory: torch.Tensor) -> bool:
        """Return whether a record lies in some memory, that a member or a shadow may lack."""
        return is_in(memory, self._last.sums if self._last else None) or self._node.feeds.uses(memory)

    def _lacking(self) -> dict[NodeId, str]:
        """Return for whom the script's thread waits: gloo does not say who has not come."""
        node = self._node
        others = [worker.id for worker in node.configuration.workers if worker.id != node.session.node]
        return dict.fromkeys(others, f"its part of the step after version {node.held}")

    def _await_news(self, generation: int, change: GroupChanged) -> None:
        """Wait for the configuration that explains why a group has failed.

        Raises:
            JobEnded: there is none in time; members give up one after the other, so that the others can go on.
        """
        node = self._node
        behind = len(node.configuration.workers) - 1 - node.configuration.ranks.get(node.session.node, 0)
        deadline = time.monotonic() + PATIENCE_SECONDS * (1 + behind)
        with node.changed:
            node.changed.wait_for(
                lambda: node.ended is not None or node.generation != generation, deadline - time.monotonic()
            )
            node.check()
            if node.generation == generation:
                raise JobEnded(f"the workers' group has failed, and nobody is known to be gone: {change}", 1)
