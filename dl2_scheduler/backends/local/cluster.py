"""This module runs jobs as processes of this machine, on virtual nodes, slot by slot."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dl2_scheduler.backends.clock import Clock
from dl2_scheduler.backends.local import decide, holding, views
from dl2_scheduler.backends.local.actions import Actions, shape_of
from dl2_scheduler.backends.local.coordinators import Coordinators
from dl2_scheduler.backends.local.desk import LocalDesk
from dl2_scheduler.backends.local.job_records import JobRecord, JobRecords, NodePlaces
from dl2_scheduler.backends.local.places.core_pins import CorePins
from dl2_scheduler.backends.local.places.loads import placed
from dl2_scheduler.backends.local.places.placing import place
from dl2_scheduler.backends.local.places.seating import seated
from dl2_scheduler.backends.local.places.settling import NOWHERE, LocalPlacement, Settling
from dl2_scheduler.backends.local.runtime import JobReport, JobRuntime, LauncherEnding
from dl2_scheduler.backends.slot_samples import SlotSamples
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, Snapshot, SpeedReport
from elastic_ps.core.errors import EXIT_LATER

log = logging.getLogger(__name__)

_PIN_SECONDS = 2.0  # between two looks for tasks that have joined since


class LocalCluster:
    """A `LocalCluster` runs jobs as processes of this machine, on virtual nodes; see `Cluster`.

    Jobs that run when it is made, of an earlier one with the same records, go on. One thread drives it.

    Args:
        nodes: virtual.
        slot_seconds: length of a slot.
        records: the records of its jobs.
        runtime: runs them.
        clock: measures slots.
        rule: the rule by which tasks of held jobs find their node.
        placing: gives tasks their nodes, which they keep; None: they are counted by the rule, slot by slot anew.

    Attributes:
        desk: takes people's requests, from any thread.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        slot_seconds: float,
        records: JobRecords,
        runtime: JobRuntime,
        clock: Clock,
        rule: NodeRule = NodeRule.SPREAD,
        placing: LocalPlacement | None = None,
    ) -> None:
        self._nodes = tuple(nodes)
        self._slot_seconds = slot_seconds
        self._records = records
        self._runtime = runtime
        self._clock = clock
        self._rule = rule
        self._settling = Settling(self._nodes, placing.policy, records.began, placing.most_moves) if placing else None
        self._pins = CorePins(self._nodes, placing.cores, runtime, placing.threads) if placing else None
        self._samples = SlotSamples()
        self._places: Mapping[int, NodePlaces] = {}
        self._actions = Actions(records, runtime, clock)
        self._coordinators = Coordinators(runtime)
        self.desk = LocalDesk(self._nodes, records, runtime, clock, rule, lambda: self._actions.notes, slot_seconds)
        self._closing = False
        self._began_slot = clock.now()
        self._slot = records.slot
        self._before: list[JobRecord] = []
        self._epochs: Mapping[int, float] = {}  # at the last snapshot, of all jobs, by number
        self._put_off: set[int] = set()  # records whose launcher has ended in this slot, for a reason that may pass
        self._reports: dict[int, JobReport] = {}
        self._over: dict[int, LauncherEnding] = {}
        self._granted: Mapping[int, Grant] = {}
        self._find_again()

    def close(self) -> None:
        """Let the slot that runs end now, as the last. Jobs go on. Safe in a signal handler."""
        self._closing = True
        self._clock.wake()

    @property
    def done(self) -> bool:
        """See `Cluster.done`: it has been closed."""
        return self._closing

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`. What held jobs take is not in it, and neither are they."""
        self._actions.notes = {}
        self._tend()
        self._observe()
        self._began_slot = self._clock.now()
        active = self._records.active()
        decided = [record for record in active if _is_decided(record) and record.number not in self._over]
        self._before = [record for record in decided if not self._actions.cannot_start(record)]
        self._granted = {}
        nodes = place(self._nodes, holding.held_demands(active), self._rule).left()
        states = tuple(views.state_of(record, self._records.began) for record in self._before)
        self._slot = self._records.slot
        reports = self._speeds(self._epochs)
        self._epochs = {record.number: record.epochs_done for record in active}
        return Snapshot(self._slot, self._slot_seconds, nodes, states, reports)

    def settle(self, allocation: Allocation) -> Allocation:
        """Return what can be done of a decision: jobs whose new tasks find no place keep what they have, or wait."""
        if self._settling is None:
            return allocation
        there = [record for record in self._records.active() if _goes_on(record) and record.number not in self._over]
        settled = self._settling.settle(there, allocation, self._clock.now())
        self._places = settled.places
        return settled.allocation

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`. Jobs that shrink go first, so that what they leave is free for the others."""
        self._records.next_slot()  # first: a slot that a kill cuts short keeps its number and its decisions
        self._granted = {record.number: allocation.of(record.name) for record in self._before}
        self._put_off.clear()
        active = self._records.active()  # as they are now: a job may have been held, or stopped, since the snapshot
        grants = [(record, self._granted[record.number]) for record in active if self._may_grant(record)]
        grants += [(record, _own(record)) for record in active if self._is_owned(record)]
        for record, _ in grants if self._settling else ():
            self._seat(record, self._reports.get(record.number), self._places.get(record.number, NOWHERE))
        for record, grant in sorted(grants, key=lambda each: _growth(*each)):
            if not record.left_alone and not self._records.tell(record.number, grant.workers, grant.servers):
                continue
            report, silence = self._reports.get(record.number), self._coordinators.silence(record)
            self._actions.give(record, report, grant, silence)

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`. It ends early where nothing runs (any more) while a job waits.

        It does not where one could not begin in it, which would be tried again and again, unless another has come.
        """
        end = self._began_slot + self._slot_seconds
        while not self._closing and self._began_slot <= (now := self._clock.now()) < end:  # a clock may be set back
            self._clock.wait(min(end - now, _PIN_SECONDS) if self._pin() else end - now)
            self._tend()
            if self._idles():
                break
        self._observe()
        return self._measure()

    def _may_grant(self, record: JobRecord) -> bool:
        return record.number in self._granted and _is_decided(record)

    def _is_owned(self, record: JobRecord) -> bool:
        """Return whether a job's owner decides about it."""
        return record.left_alone and _goes_on(record) and record.number not in self._over

    # ---- what has happened -----------------------------------------------------------------------------------------

    def _find_again(self) -> None:
        """Take over the jobs of an earlier cluster.

        They are told again what they may not have heard, and their ends are noticed.
        """
        for record in self._records.active():
            if record.process is None and record.phase.has_processes:
                self._records.change(record.number, phase=LiveJobPhase.WAITING)  # it was never begun
            elif record.process is not None and self._runtime.is_alive(record.process):
                self._runtime.watch(record.process)
                self._actions.resume(record)

    def _tend(self) -> None:
        """Notice launchers that have ended, end jobs as asked, and give held jobs what their owners want."""
        self._actions.tend()
        for record in self._records.active():
            if record.process is not None and not self._runtime.is_alive(record.process):
                path = self._runtime.log(record.name, record.number, record.runs)
                ending = self._runtime.ending(record.name, record.process, path)
                record = self._records.change(record.number, **decide.ended(record, ending, self._clock.now()))
                if ending.status == EXIT_LATER:
                    self._put_off.add(record.number)
                why = f": {record.reason}" if record.reason not in ("", record.phase) else ""
                log.info("%s: %s%s", record.name, record.phase, why)
            if record.stop_asked and record.phase is LiveJobPhase.WAITING:
                ended = self._clock.now()
                self._records.change(record.number, phase=LiveJobPhase.STOPPED, reason="as asked", ended=ended)
            elif record.stop_asked and not record.phase.ended and record.phase is not LiveJobPhase.STOPPING:
                self._actions.end(record, LiveJobPhase.STOPPING, "as asked")
        self._tend_held()
        self._runtime.tend([shape_of(record) for record in self._records.active()])

    def _tend_held(self) -> None:
        """Give held jobs what their owners want, without waiting for the next slot.

        Those that grow into what others still have do wait.
        """
        active = self._records.active()
        for record in active:
            wanted = _own(record)
            if not self._is_owned(record) or (record.workers, record.servers) == (wanted.workers, wanted.servers):
                continue
            if _growth(record, wanted) <= 0 or not placed(active, self._nodes, self._rule).over:
                report = self._coordinators.report(record)
                self._actions.give(record, report, wanted, self._coordinators.silence(record))

    def _idles(self) -> bool:
        decided = [record for record in self._records.active() if not record.left_alone]
        if not decided or any(record.phase.has_processes for record in decided):
            return False
        return not self._put_off or any(record.number not in self._granted for record in decided)

    def _observe(self) -> None:
        """Ask every coordinator."""
        self._reports, self._over = {}, {}
        active = self._records.active()
        for record, heard in zip(active, self._coordinators.hear_all(active), strict=True):
            match heard:
                case JobReport() as report:
                    self._reports[record.number] = report
                    other = (report.workers, report.servers) != (record.workers, record.servers)
                    since = self._coordinators.since(record) if other or record.since is None else record.since
                    back = self._coordinators.why_back(record) if decide.has_gone_back(record, report) else ""
                    self._records.change(record.number, since=since, **decide.reported(record, report, back))
                    self._keep_places(record, report)
                case LauncherEnding() as ending if decide.ends(record, ending):
                    self._over[record.number] = ending
        if self._pins is not None:
            self._pins.forget(self._reports.values())

    def _pin(self) -> bool:
        """Move tasks to their nodes' cores, and return whether some are still to come."""
        if self._pins is None:
            return False
        late = False
        for record in self._records.active():
            if record.process is None or record.places == NOWHERE:
                continue
            if self._pins.lacks(record, self._reports.get(record.number)):
                report = self._coordinators.report(record)
                if report is not None:
                    self._reports[record.number] = report
                    self._seat(record, report, record.places)
                late |= self._pins.lacks(record, report)
        return late

    def _keep_places(self, record: JobRecord, report: JobReport) -> None:
        """Keep a job's tasks to their nodes' cores; or free those that an earlier cluster has kept so."""
        if self._pins is not None:
            self._seat(record, report, record.places)
        elif record.places != NOWHERE:
            for task in report.tasks:
                self._runtime.pin(task.pid, frozenset(os.sched_getaffinity(0)))
            self._records.change(record.number, places=NOWHERE, seats=())

    def _seat(self, record: JobRecord, report: JobReport | None, places: NodePlaces) -> None:
        """Give a job its places, and its tasks the cores of their nodes; those that have not joined get theirs then."""
        if report is None or self._pins is None:
            self._records.change(record.number, places=places)
            return
        now = seated(replace(record, places=places), report)
        self._pins.keep(self._records.change(record.number, seats=now.seats, places=now.places), report)

    def _measure(self) -> SlotOutcome:
        now = {record.number: self._as_ended(record) for record in self._records.all()}
        began = self._records.began
        outcomes = []
        for before in self._before:
            if before.number not in now:  # it has ended, and is forgotten: the clock may have been set back by years
                continue
            grant, note = self._granted.get(before.number, NOTHING), self._actions.notes.get(before.number, "")
            outcome = views.outcome_of(before, now[before.number], grant, note, began)
            if outcome.workers and (outcome.servers or before.document.spec.all_reduces):
                self._records.change(before.number, slots_run=before.slots_run + 1)
            outcomes.append(outcome)
        there = self._records.active()
        moved = {each.number for each in there if not views.stands(each, self._epochs.get(each.number))}
        told = views.placed_jobs(there, moved & self._reports.keys())
        placed = self._samples.at_end_of_slot(told, [node.name for node in self._nodes])
        ended = self._clock.now() - began
        return SlotOutcome(self._slot, outcomes, self._speeds(self._epochs), self._began_slot - began, ended, placed)

    def _speeds(self, before: Mapping[int, float]) -> tuple[SpeedReport, ...]:
        """Return what jobs that just answered have told; held ones too, which tell about their types.

        Args:
            before: the epochs that each job had done at the last snapshot, by its number.
        """
        told = (record for record in self._records.active() if record.number in self._reports)
        found = (views.speed_of(record, before.get(record.number)) for record in told)
        return tuple(speed for speed in found if speed is not None)

    def _as_ended(self, record: JobRecord) -> JobRecord:
        """Let a job that is over have ended, though its launcher has not.

        No later slot's outcome would tell it.
        """
        ending = self._over.get(record.number)
        return record if ending is None else replace(record, **decide.ended(record, ending, self._clock.now()))


def _is_decided(record: JobRecord) -> bool:
    """Return whether the policy decides about a job."""
    return not record.left_alone and _goes_on(record)


def _goes_on(record: JobRecord) -> bool:
    return not record.phase.ended and record.phase is not LiveJobPhase.STOPPING


def _own(record: JobRecord) -> Grant:
    """Return what the owner of a job that the policy leaves alone wants it to have."""
    return NOTHING if record.suspended else Grant(record.wanted_workers, record.wanted_servers)


def _growth(record: JobRecord, grant: Grant) -> int:
    return grant.workers + grant.servers - record.workers - record.servers
