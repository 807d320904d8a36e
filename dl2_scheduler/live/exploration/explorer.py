"""This module lets a slot's decision explore, and keeps the budget's counters over restarts."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.ranges import LATEST, MOST_WHOLE, check_range
from dl2_scheduler.cluster.snapshot import Allocation, JobId, Snapshot
from dl2_scheduler.live.exploration.budget import ExplorationBudget
from dl2_scheduler.live.exploration.step import ExplorationTerms, explore
from dl2_scheduler.live.exploration.telling import Telling
from dl2_scheduler.live.slot_draft import SlotDraft
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.whole_files import write_whole

log = logging.getLogger(__name__)

EXPLORATION_FILE = "exploration.json"
"""In the cluster's folder: the budget's counters."""

_VALID_SLOTS = 3  # after which what was found out is old: the jobs are others
_MEASURED_PART = 0.25  # of the exploration, in which the job has to train with what it was given
_BUDGET = TypeAdapter(ExplorationBudget)


class Explorer:
    """An `Explorer` decides which jobs explore, slot after slot. Whatever goes wrong here, the slot goes on without.

    Args:
        part: of the cluster's capacity over time that exploring may take; above 0.
        folder: the folder of the cluster.
        telling: returns what was found out last about configurations worth trying.
        slots: for which a job keeps the counts that it explores; see `ExplorationTerms`.
        now: returns unix seconds.

    Attributes:
        budget: what was spent, and what is left.

    Raises:
        BadInput: the counters that an earlier scheduler has left cannot be used.
    """

    def __init__(
        self,
        part: float,
        folder: Path,
        telling: Callable[[], Telling],
        slots: int = 1,
        now: Callable[[], float] = time.time,
    ):
        self._part, self._file, self._telling, self._slots = part, folder / EXPLORATION_FILE, telling, slots
        self._now = now
        self.budget = _stored(self._file)
        self._explored: dict[str, int] = {}  # the last slot in which a job of the type did
        self._charges: Mapping[JobId, float] = {}
        self._last = ""

    def explored(self, draft: SlotDraft, permitted: Callable[[SlotDraft], bool]) -> SlotDraft:
        """Return the decision of a slot in which some jobs explore; what it costs is written down before.

        Args:
            draft: the decision.
            permitted: whether a decision keeps to the limits of a slot.
        """
        self._charges = {}
        try:
            if draft.snapshot.jobs:
                return self._explored_in(draft, permitted)
            if self.budget.length:
                self._keep(self.budget.ended(self._part, self._now()))
        except Exception:
            log.exception("slot %d: nothing is explored", draft.snapshot.slot)
        return draft

    def _explored_in(self, draft: SlotDraft, permitted: Callable[[SlotDraft], bool]) -> SlotDraft:
        now, telling = draft.snapshot, self._telling()
        budget = self.budget.at_slot(now.slot, now.slot_seconds, self._part, self._now())
        terms = ExplorationTerms(budget.saved, self._slots, telling.scaling_seconds)
        length = self._slots * now.slot_seconds
        told = telling.scaling_seconds <= (1 - _MEASURED_PART) * length and now.slot - telling.slot <= _VALID_SLOTS
        new = [each for each in telling.configurations if self._explored.get(each.model, -1) < telling.slot]
        found, charges = explore(draft, new if told else (), terms, permitted)
        self._keep(budget.paid(sum(charges.values()), len(charges)))
        self._charges = charges
        return found

    def done(self, snapshot: Snapshot, allocation: Allocation) -> None:
        """Take back the charge of jobs that do not explore, as no place was found for their tasks.

        Args:
            snapshot: the cluster at the slot's start.
            allocation: what is done.
        """
        models = {state.job.id: state.job.model for state in snapshot.jobs}
        charges, self._charges = self._charges, {}  # a slot in which the policy fails asks for no exploration
        missed = [job for job in charges if allocation.of(job).instead is None]
        for job in [job for job in charges if job not in missed]:
            grant = allocation.of(job)
            self._explored[models[job]] = snapshot.slot
            self._last = f"; the last in slot {snapshot.slot}, {job} with {grant.workers}+{grant.servers}"
        if missed:
            try:
                self._keep(self.budget.paid(-sum(charges[job] for job in missed), -len(missed)))
            except OSError:
                log.exception("slot %d: what was not explored counts as if it were", snapshot.slot)

    @property
    def summary(self) -> str:
        """Return what was spent, for people."""
        found = self.budget
        times = "once" if found.jobs == 1 else f"{found.jobs} times"
        return f"at most {100 * self._part:g}% of the cluster: {times}, {found.part_spent:.2%} so far{self._last}"

    def _keep(self, budget: ExplorationBudget) -> None:
        """Keep a budget, and write it down; raises OSError where that is not possible."""
        text = json.dumps(asdict(budget)) + "\n"
        write_whole(self._file, text.encode(), self._file.with_suffix(".partial"))
        self.budget = budget


def _stored(file: Path) -> ExplorationBudget:
    """Return the counters of an earlier scheduler; new ones where there was none. Raises BadInput."""
    try:
        found = _BUDGET.validate_json(read_text(file))
        for name in ("lived", "spent", "began", "length"):
            check_range(name, getattr(found, name), LATEST)
        check_range("saved", max(found.saved, 0.0), LATEST)
        check_range("jobs", found.jobs, MOST_WHOLE)
    except FileNotFoundError:
        return ExplorationBudget()
    except (OSError, ValueError, BadInput) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise BadInput(f"cannot use {file}: {why}: bring a copy of it back, or delete it") from error
    return found
