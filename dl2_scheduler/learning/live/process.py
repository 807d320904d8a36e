"""Learning beside the loop: its program, and the weights that come of it. Torch is not imported here."""

import importlib.util
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.federated.sharing_status import SharingStatus
from dl2_scheduler.learning.live.rule_names import DRF, PLANNER
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.side_program import SideProgram
from dl2_scheduler.policies.learnt.dl2 import interrupted
from dl2_scheduler.policies.learnt_names import DL2
from elastic_ps.system.bounded_files import read_text

log = logging.getLogger(__name__)

BEFORE_LIVE = "before-live"
"""Folder in a run's, that keeps the run as it was before it learnt live."""

_BEHIND = 0.02
"""Part by which jobs take longer in dreams under a network than under the planner, from which on that stands in; until
the network is no longer behind it."""

_FEW_JOBS = 20
"""Before so many have come dreams of them say little of a network, and the planner stands in."""


class Learner:
    """See `Beside`. The learnt policy that was asked for, or else the learnt shadow, learns in its run's folder.

    Args:
        policies: of the cluster.
        folder: of the cluster.
        rule: by which tasks find their node.
        cores: that it takes its share of; 0: only what nobody else uses.
        shared: folder in which clusters tell each other what they learnt; None: this one learns alone.

    Attributes:
        updates: that the run that learns has seen beside live clusters; 0: none yet.
        slot: the last slot after which it learnt; -1: none yet.
        accepted: proposals that took the place of the weights before, since the program was started.
        refused: proposals that did not.
        core_seconds: that the program has computed for them.
        sharing: how sharing goes; None: nothing is shared.
    """

    def __init__(self, policies: Policies, folder: Path, rule: NodeRule, cores: int = 0, shared: Path | None = None):
        self._begin()
        self.sharing = None if shared is None else SharingStatus(shared)
        self._shared = () if shared is None else (str(shared),)
        self._policies, self._folder, self._rule, self._cores = policies, folder, rule, cores
        self._name: str | None = None
        self._uses = policies.uses
        self._side: SideProgram | None = None
        self._said = ""

    def _begin(self) -> None:
        self.updates, self.slot, self.accepted, self.refused, self.core_seconds = 0, -1, 0, 0, 0.0
        self._verdict = ""

    def before(self, slot: int) -> None:
        """See `Beside.before`: new weights decide from now on."""
        for said in self._side.said() if self._side else ():
            if "error" in said:
                self._said = said["error"]
                log.error("learning: slot %d: %s", slot, self._said)
            elif self._name is not None:
                self._hear(self._name, said)

    def _hear(self, name: str, said: Mapping[str, Any]) -> None:
        """Take in what came of a slot's dreams, of the policy of that name."""
        self.core_seconds += said["core_seconds"]
        if "compared" in said:
            self._policies.renew(name)  # one before may have died that had written it, and not said so
            self._stand(name, said["compared"], said)
            return
        self.updates, self.slot = said["updates"], said["slot"]
        if "verdict" in said:
            self._verdict = f"the last, after slot {self.slot}, was {said['verdict']}"
            self.accepted += said["accepted"]
            self.refused += not said["accepted"]
        theirs = said.get("sharing", {})
        if self.sharing is not None and theirs:
            self.sharing.hear(theirs)
        # Theirs was judged first: where it was refused, it tells of the policy before the other proposal.
        for of_whom, proposal in (("another cluster's policy", theirs), ("a proposal", said)):
            if proposal.get("accepted"):
                log.info("learning: slot %d: %s was %s", self.slot, of_whom, proposal["verdict"])
                self._policies.renew(name)
            if "beside" in proposal:
                self._stand(name, self.slot, {**said, **proposal})
        proposals = f"{self.accepted} of {self.accepted + self.refused} proposals accepted"
        self._said = "; ".join(filter(None, (f"{self.updates} updates, {proposals}", self._verdict)))

    def _stand(self, name: str, slot: int, said: Mapping[str, Any]) -> None:
        """Let the planner stand in for a network that is behind it, has not been tried enough, or has lost its place.

        It does where it is no worse than DRF in dreams.

        Args:
            name: of the network.
            slot: of which it was dreamt.
            said: of the dreams: "jobs", and "beside", see `judge.Verdict`.
        """
        behind, jobs = said["beside"][PLANNER], said["jobs"]
        is_new, is_out = jobs < _FEW_JOBS, bool(self._policies.choice.fallen)
        more = f"{abs(behind):.0%} {'longer' if behind > 0 else 'less'}"
        why = f"in dreams after slot {slot} jobs take {more} under {name}"
        is_better = behind >= said["beside"][DRF]  # the planner, than DRF
        if is_better and (behind > _BEHIND or is_new or is_out):
            few = f", which saw {jobs} jobs: {_FEW_JOBS} tell how good it is" if is_new else ", which goes on learning"
            self._policies.stand_in(name, why + few)
        elif not is_better or (behind <= 0 and not is_new and not is_out):
            self._policies.end_stand_in(why if is_better else f"{why}, and longer under the planner than under DRF")

    def after(self, slot: int) -> None:
        """See `Beside.after`."""
        name, uses = self._policies.in_use(DL2), self._policies.uses
        if name != self._name or uses != self._uses or (name is not None and self._side is None):
            self._uses = uses
            self._follow(name)
        if self._side is not None:
            self._side.tell(str(slot))

    @property
    def summary(self) -> str:
        """Return how it goes, for people."""
        if self._name is None:
            return "no learnt policy is in use, dl2:RUN"
        trouble = self._side.trouble if self._side else ""
        return f"{self._name}: {'; '.join(filter(None, (self._said, trouble))) or 'no update yet'}"

    def close(self) -> None:
        """End its program."""
        if self._side is not None:
            self._side.close()

    def _follow(self, name: str | None) -> None:
        """Learn in another run, or in none; or in the same anew: it may have changed, or have been refused before."""
        self.close()
        said = self._said if name == self._name else ""
        self._name, self._side, self._said = name, None, ""
        self._begin()
        if name is None:
            return
        run = Path(name.removeprefix(DL2))
        try:
            check_learns(run)
        except BadInput as error:
            self._said = str(error)
            if self._said != said:
                log.error("learning: %s; it is looked at again each slot", error)  # noqa: TRY400  # for operators
            self._policies.end_stand_in("nothing learns, so nobody compares them")
            return
        command = [sys.executable, "-m", "dl2_scheduler.learning.live.program", str(run), str(self._folder)]
        output = self._folder / "logs" / "learning.log"
        self._side = SideProgram("learning", [*command, str(int(self._rule)), str(self._cores), *self._shared], output)


def check_learns(run: Path) -> None:
    """Refuse a run that cannot go on learning.

    Raises:
        BadInput: it is no run's folder, the kept original of another run, or of the paper's network; or torch is not
            installed, as in the image that only decides.
    """
    if run.resolve().name == BEFORE_LIVE:
        raise BadInput(
            f"{run} is kept as it is, as the run was before it learnt live, and learns nothing: copy it to another "
            "folder, and give that one"
        )
    if why := interrupted(run):
        raise BadInput(f"{run} is no run that can learn: {why}")
    try:
        told = dict(json.loads(read_text(run / "settings.json"))["settings"])
        checkpoint = (run / "checkpoint.pt").exists()
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{run} is no run that can learn: {error}: give the folder of a dl2 bootstrap") from error
    if not checkpoint:
        raise BadInput(f"{run} has no checkpoint to learn from: give the folder of a dl2 bootstrap")
    if told.get("network") != "shared":
        raise BadInput(f"{run} has the paper's network, which learns in simulations alone: leave out --learn")
    if importlib.util.find_spec("torch") is None:
        raise BadInput(
            "learning needs torch, which is not installed here: install the extra learning, or leave out --learn"
        )
