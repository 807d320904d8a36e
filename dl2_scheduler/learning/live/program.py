"""The learner's program: told of slots, it dreams after each, and says what came of it.

    python -m dl2_scheduler.learning.live.program RUN FOLDER RULE CORES [SHARED]

RUN is the run's folder, FOLDER the cluster's, RULE a `NodeRule`, CORES as `--learn-cores` has them, SHARED the folder
in which clusters tell each other what they learnt; of that it says "sharing", see `SharingStatus`. It says lines
{"updates": 7, "slot": 12, "core_seconds": 2.5, "jobs": 9} with losses; jobs are those that the run has seen. In some of
them are "verdict", for people, "accepted", whether the policy was written that decides from then on, and "beside", see
`Verdict.beside`. First comes a line {"compared": 11, "core_seconds": 0.9, "jobs": 3, "beside": ...}, of the policy as
it was. Or it says {"error": why it does not learn}, and ends. `RUN/before-live/` keeps the run as it was before the
first update.
"""

import json
import logging
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dl2_scheduler.cluster.errors import SchedulerError
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.federated.member import FederationMember
from dl2_scheduler.learning.live.dreamer import Dreamer
from dl2_scheduler.learning.live.judge import Verdict, beside_rules, judge
from dl2_scheduler.learning.live.process import BEFORE_LIVE
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import be_nice, told
from dl2_scheduler.policies.learnt.dl2 import POLICY_FILE, load, save
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.world_model.observed import ObservedCluster
from dl2_scheduler.world_model.worlds import Worlds, can_be_played
from elastic_ps.system.printable import LogLines, log_to_stderr

log = logging.getLogger(__name__)

_WORLDS = 5  # that are drawn after a slot
_PROPOSES_EVERY = 3  # updates: judging takes as long as one or two of them
_YOUNG, _AT_FIRST = 120, 6  # updates, in which a run makes so many after each slot, as there is most to learn; then one


class Dreaming:
    """A `Dreaming` follows the history of a cluster, and improves a run's policy in dreams of it.

    Args:
        folder: of the run.
        history: of the cluster.
        rule: by which tasks find their node.
        member: of the clusters that share what they learn; None: this one learns alone.
    """

    def __init__(self, folder: RunFolder, history: History, rule: NodeRule, member: FederationMember | None = None):
        self._folder, self._rule, self._member = folder, rule, member
        self._dreamer = Dreamer(folder, rule)
        self._observed = ObservedCluster.recent(history)  # on idle cores all of a long one takes an hour
        self._slot = self._looked = -1
        self._compared = False

    @property
    def updates(self) -> int:
        """The updates that the run has seen."""
        return self._dreamer.updates

    def compare(self) -> dict[str, Any] | None:
        """Compare the policy that decides with rules, once, as soon as something is known; None: not now."""
        if self._compared or (slot := self._new_slot()) is None:
            return None
        self._compared, began = True, time.process_time()
        beside = beside_rules(self._deciding, self._worlds(slot), self._rule)
        seconds = time.process_time() - began
        return {"compared": slot, "core_seconds": seconds, "beside": beside, "jobs": self._jobs}

    def dream(self) -> dict[str, Any] | None:
        """Learn in dreams of what is known now, and propose what was learnt; None: nothing is new, or known."""
        slot = self._new_slot()
        if slot is None:
            return None
        self._slot, began = slot, time.process_time()
        worlds = self._worlds(slot)
        found: dict[str, Any] = {}
        for _ in range(_AT_FIRST if self.updates < _YOUNG else 1):
            found = self._dreamer.update(worlds)
        self._dreamer.jobs = self._jobs
        self._dreamer.save()
        theirs = self._try_theirs()
        if self.updates % _PROPOSES_EVERY == 0 and not theirs.get("accepted"):
            verdict = self._judged(self._dreamer.weights)
            found |= {"verdict": verdict.words, "accepted": verdict.accepted, "beside": verdict.beside}
        if self._member is not None:
            self._member.tell(self._observed, self._deciding)
            found["sharing"] = {**self._member.report, **theirs}
        seconds = time.process_time() - began
        return {"updates": self.updates, "slot": self._slot, "core_seconds": seconds, "jobs": self._jobs, **found}

    def _new_slot(self) -> int | None:
        """Return the last slot, if it was not dreamt of yet; None: nothing is new, or nothing is known."""
        self._observed.catch_up()
        last = self._observed.last
        if last is None or last.snapshot.slot == self._slot or not last.snapshot.nodes:
            return None
        if self._member is not None and last.snapshot.slot != self._looked:
            self._member.look(self._observed)  # which counts slots
            self._looked = last.snapshot.slot
        # Where nobody has told a speed a dream of any would mislead.
        return last.snapshot.slot if self._observed.fitted.models and can_be_played(self._observed) else None

    @property
    def _jobs(self) -> int:
        """Jobs that the run has learnt with: of a long history only the last slots are read after a restart."""
        return max(len(self._observed.jobs.by_key), self._dreamer.jobs)

    def _worlds(self, slot: int) -> Worlds:
        return Worlds(self._observed, _WORLDS, np.random.default_rng([self.updates, slot]))

    @property
    def _deciding(self) -> Weights:
        present = load(self._folder.path)
        assert isinstance(present, Weights)
        return present

    def _judged(self, proposal: Weights) -> Verdict:
        """Let a proposal decide from now on, if it wins in worlds in which it has not learnt; return the verdict."""
        others = self._worlds(self._slot)  # there are more updates than when those were drawn
        verdict = judge(proposal, self._deciding, others, self._rule)
        if verdict.accepted:
            save(proposal, self._folder.path / POLICY_FILE)
        return verdict

    def _try_theirs(self) -> dict[str, Any]:
        """Try another cluster's policy, if there is one to try; one that wins is gone on from."""
        proposal = self._member.proposal(self._dreamer.weights) if self._member else None
        if proposal is None:
            return {}
        verdict = self._judged(proposal)
        if verdict.accepted:
            self._dreamer.adopt(proposal)
            self._dreamer.save()
        return {"verdict": verdict.words, "accepted": verdict.accepted, "beside": verdict.beside}


def learn(run: Path, folder: Path, rule: NodeRule, shared: Path | None = None) -> None:
    """Learn whenever there is something to learn from, until nobody tells any more.

    Args:
        run: folder of the policy that learns.
        folder: of the scheduler, with its history.
        rule: by which tasks find their node.
        shared: folder in which clusters tell each other what they learnt; None: this one learns alone.

    Raises:
        SchedulerError: it cannot.
    """
    run_folder = RunFolder(run)
    with run_folder.held(), closing(History.of_folder(folder)) as history:
        member = None if shared is None else FederationMember(shared, folder)
        dreaming = Dreaming(run_folder, history, rule, member)
        if not dreaming.updates:
            keep(run)
        for _ in told():
            for step in (dreaming.compare, dreaming.dream):
                if (found := step()) is not None:
                    print(json.dumps(found), flush=True)


def keep(run: Path) -> None:
    """Copy a run's settings, checkpoint and policy, once."""
    before = run / BEFORE_LIVE
    if before.exists():
        return
    partial = run / f"{BEFORE_LIVE}.partial"
    partial.mkdir(exist_ok=True)
    for name in ("settings.json", "checkpoint.pt", "policy.npz"):
        shutil.copy2(run / name, partial / name)
    partial.rename(before)


def main() -> None:
    """See the module."""
    run, folder, rule, cores, *shared = sys.argv[1:]
    be_nice(only_idle_cores=not int(cores))
    torch.set_num_threads(1)
    log_to_stderr(LogLines())
    try:
        learn(Path(run), Path(folder), NodeRule(int(rule)), *map(Path, shared))
    except (SchedulerError, OSError) as error:
        log.exception("it does not learn")
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
