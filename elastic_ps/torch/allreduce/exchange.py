"""A `GroupExchange` makes a worker's steps with the members of its configuration, and agrees with them after a switch.

All of it runs on the script's thread, which waits for collectives on the group's own thread.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch

from elastic_ps.core.configuration import NO_CONFIGURATION, NodeId
from elastic_ps.core.data_order import DataSpec, share
from elastic_ps.core.errors import JobEnded, ProtocolError
from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.optimizer import Hyper
from elastic_ps.torch.allreduce.agreement import BEGINS, HeldVersion, agree, checked
from elastic_ps.torch.allreduce.following.shadow_feed import ShadowFeed
from elastic_ps.torch.allreduce.following.shadow_follower import ShadowFollower
from elastic_ps.torch.allreduce.frozen_apart import frozen_apart, refusal_of
from elastic_ps.torch.allreduce.group import Collective, WorkerGroup
from elastic_ps.torch.allreduce.group_collectives import GroupChanged, GroupCollectives
from elastic_ps.torch.allreduce.group_state import Following
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.replica.record import StepRecord
from elastic_ps.torch.allreduce.replica.replica import PartWeights, Replica
from elastic_ps.torch.allreduce.step_division import StepDivision
from elastic_ps.torch.allreduce.step_told import StepTold, ledger_entry
from elastic_ps.torch.allreduce.summing.step_buffers import StepBuffers, is_in
from elastic_ps.torch.allreduce.summing.step_sum import BUCKET_BYTES, StepSum
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


def _weights(part: StepPart, spec: DataSpec, gives: bool) -> PartWeights:
    """Return what a part of a step counts by: a mean by its samples, a sum by those that all lack."""
    assert part.place is not None
    samples, all_samples = len(part.positions), len(share(spec, part.place.step, 0, 1))
    own = samples if spec.loss == "mean" else spec.global_batch
    return PartWeights(own / all_samples if gives and samples else 0.0, samples / all_samples)


class GroupExchange:
    """A `GroupExchange` holds the replica of this worker at the version of the members.

    Args:
        node: this worker.
        replica: its model and optimizer.

    Attributes:
        skipped: the last step changed no parameter, as a gradient was not finite.
    """

    def __init__(self, node: GroupNode, replica: Replica):
        self.skipped = False
        self._node = node
        self._replica = replica
        self._gathering: tuple[int, Collective] | None = None  # an agreement's, by the generation it is of
        self._buffers = StepBuffers(replica.layout, self._is_used)
        self._buckets = replica.layout.buckets(BUCKET_BYTES)
        self._step: StepSum | None = None  # under way
        self._division = StepDivision()
        self._tried: tuple[NodeId, ...] | None = None  # the members of the last step that this one has had a part in
        self._collectives = GroupCollectives(node, self._abandon)
        self._suspended = 0.0  # seconds that the agreement under way has taken from the script so far
        self._last: StepRecord | None = None  # kept until the next one: a member may lack it
        self._switched_to = NO_CONFIGURATION
        self._first = True  # the next step is the first of a configuration
        node.feeds.begin(
            lambda shadow: ShadowFeed(shadow, replica, lambda: told_of(node), lambda: node.held, node.feeds)
        )

    def follow(self, following: Following) -> None:
        """Follow a member, to join; see `ShadowFollower.follow`."""
        node, current = self._node, self._node.standing.current
        node.proven = False
        self._buffers.prepare()
        self._division.stepped(None if current is None or not following.giver else roster(current))
        gradients = self._replica.spare_gradients()  # what is received meanwhile lies elsewhere
        ShadowFollower(node, node.membership, self._replica).follow(following)
        gradients.clear()

    def begin_agreement(self) -> None:
        """Tell all members what this one holds, and go on: the next step waits for what they hold."""
        node, started = self._node, time.monotonic()
        with node.changed:
            node.check()
            generation = node.generation
        with suppress(GroupChanged):  # the step begins another one
            self._gather(self._collectives.group(generation), generation)
        self._suspended += time.monotonic() - started

    def begin_again(self) -> None:
        """Take back what the batch of a step has changed, which is divided otherwise now and computed again."""
        self._replica.undo_batch()

    def part_of(self, part: StepPart, spec: DataSpec) -> StepPart:
        """Return what this worker does of a step; `part` is what it would if the step were divided among all."""
        return self._division.part_of(part, self._node.session.node, spec, self._node.held)

    def sum_early(self, keys: Sequence[str], part: StepPart, spec: DataSpec) -> bool:
        """Begin to sum gradients while others are not there; return False where the step has to begin with all.

        Args:
            keys: of parameters whose gradients are there.
            part: of the step.
            spec: of the job's data.
        """
        node = self._node
        with node.changed:
            node.check()
            shared, generation = roster(node.configuration), node.generation
            if node.fresh or shared != part.roster:
                return False
        try:
            numbers = self._replica.parameter_numbers
            self._step_sum(part, spec, generation, gives=True).ready([numbers[key] for key in keys])
        except GroupChanged:
            return False
        return True

    def run(self, part: StepPart, spec: DataSpec, gives: bool, hyper: Hyper) -> bool:
        """Make the step of `part`; return False where other workers share it now, and it must be computed again.

        Args:
            part: of the step.
            spec: of the job's data.
            gives: the gradients there are of this step.
            hyper: what the norm of all gradients is for; the chief's bound counts, and anybody's overflows.

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
                if self._step is not None:
                    self._abandon()
                return False
            else:
                try:
                    record = self._reduce(part, spec, generation, gives, hyper)
                except GroupChanged as change:
                    failed = str(change)  # its frames hold what the connections of the group wait for to be closed
                else:
                    if record is None:
                        return False
                    self._apply(record)
                    self._collectives.stepped()
                    self._division.stepped(shared)
                    continue
                self._collectives.wait_for_news(generation, failed)
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
                failed = str(change)  # see `run`
            self._collectives.wait_for_news(generation, failed)
        self._first = True
        with node.changed:
            node.fresh = node.generation != generation
        suspended, self._suspended = self._suspended + time.monotonic() - started, 0.0
        if number != self._switched_to:  # else its members have met again, which no plan is to blame for
            self._switched_to = number
            node.session.acknowledge(pb.SWITCHED, number, node.version, suspended * 1000)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _agree(self, generation: int) -> None:
        node, replica = self._node, self._replica
        group = self._collectives.group(generation)
        gathered = self._collectives.wait(self._gather(group, generation), generation)
        holdings = checked([HeldVersion.of(numbers) for numbers in gathered])
        found = agree(holdings)
        rank = group.rank
        if holdings[rank].shape != holdings[found.giver].shape:
            raise ProtocolError(
                "this worker's model, optimizer or compression is not as the others': give all the same script"
            )
        if node.held == BEGINS and rank == found.giver:
            node.ledger.begin(f"workers.{group.number.term}", ())
            node.held = found.version
        if found.records:
            self._pass_record(group, generation, found.giver, rank in found.records)
        if found.states:
            if rank == found.giver:
                packed = state_of(replica, node)  # here, as this thread may go on before the group's thread is done
                self._collectives.run(group, generation, lambda: give_state(group, packed))
            else:
                taken = self._collectives.run(group, generation, lambda: take_state(group, found.giver))
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
            self._replica.note_change()  # the group's thread looks at what this one has loaded, or followed to
            own = HeldVersion(node.held, last is not None and last.version == node.held - 1, node.proven)
            self._gathering = generation, group.submit(lambda: self._tell_held(group, own))
        return self._gathering[1]

    def _tell_held(self, group: WorkerGroup, own: HeldVersion) -> list[list[float]]:
        """Gather what all hold; on the group's thread, as parameters stay as they are until this has ended."""
        replica = self._replica
        return group.gather(replace(own, fingerprint=replica.fingerprint(), shape=replica.shape()).told())

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
            self._collectives.run(group, generation, partial(give_record, group, last))
            return
        record = self._collectives.run(group, generation, lambda: take_record(group, giver, layout))
        if lacks:
            self._apply(record)
            if self._tried is not None:  # a joiner has only followed to the version before
                self._division.stepped(self._tried)

    def _reduce(self, part: StepPart, spec: DataSpec, generation: int, gives: bool, hyper: Hyper) -> StepRecord | None:
        """Sum the gradients of all members, in the order of ranks; None: their parts are not the step once."""
        node, replica = self._node, self._replica
        group, gives = self._collectives.group(generation), gives or self._step is not None
        present = tuple(replica.present(gives and len(part.positions) > 0))
        frozen = tuple(replica.frozen(any(present)))
        own = StepTold(node.held, part.positions, hyper, present, replica.numbers, frozen)
        step, self._tried = self._step_sum(part, spec, generation, gives), part.roster
        gathered = self._collectives.wait(step.finish(own.told()), generation)
        self._step = None
        told = [StepTold.of(numbers, len(present)) for numbers in gathered]
        if {each.version for each in told} != {node.held}:
            raise ProtocolError(f"members made one step at versions {[each.version for each in told]}")
        if not self._division.is_sound([each.positions for each in told], part, spec, node.held):
            return None
        if apart := frozen_apart(told):
            if group.rank in apart:
                node.give_up_place()
                raise refusal_of(replica, apart[group.rank])
            return None  # those end, and the others make the step without them
        chief = told[0]
        # A worker on a GPU may have a GradScaler where the chief, on a CPU, has none: its overflows are everybody's.
        decides = replace(chief.hyper, skip_overflow=any(each.hyper.skip_overflow for each in told))
        factor = 1.0
        if decides.needs_norm:
            factor = self._collectives.run(group, generation, partial(step.clip, decides))
        entry = ledger_entry(group.number, part, told, len(node.model.blocks))
        anybody = tuple(
            factor != SKIPPED and any(flags) for flags in zip(*(each.present for each in told), strict=True)
        )
        return StepRecord(node.held, step.sums, anybody, chief.numbers, entry)

    def _step_sum(self, part: StepPart, spec: DataSpec, generation: int, gives: bool) -> StepSum:
        """Return the sum of the step under way, whose first buckets may be on their way already."""
        if self._step is not None and self._step.generation != generation:
            self._abandon()
        if self._step is None:
            replica, weights = self._replica, _weights(part, spec, gives)
            self._step = StepSum(
                self._collectives.group(generation),
                generation,
                self._buckets,
                self._buffers,
                lambda bucket, sums: replica.fill(bucket, sums, weights),
            )
        return self._step

    def _abandon(self) -> None:
        """Leave the memory of sums to what is left behind: gloo may use it yet."""
        self._step = None
        self._buffers.abandon()

    def _apply(self, record: StepRecord) -> None:
        """Go to the next version by a record; whoever made one more step had all members' contributions to it."""
        node = self._node
        with node.feeds.updating(record):
            try:
                is_whole = self._replica.apply(record)
            except BaseException:  # the others have made the step: nobody could make it once more with this one
                node.end(JobEnded("the optimizer has failed in a step that the other workers have made", 1))
                raise
            self._last = record if is_whole else None
            self.skipped = not any(record.present)
            node.ledger.settle(record.version)
            node.ledger.append(record.entry)
            node.held = record.version + 1
        if not is_whole:
            node.feeds.spoiled()
        node.saver.reached()

    def _is_used(self, memory: torch.Tensor) -> bool:
        """Return whether a record lies in some memory, that a member or a shadow may lack."""
        return is_in(memory, self._last.sums if self._last else None) or self._node.feeds.uses(memory)
