"""This module says which policy decides, and which does so beside it without acting.

People change both while the cluster runs.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Allocation
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.whole_files import write_whole

log = logging.getLogger(__name__)

POLICY_FILE = "policy.json"
"""In the cluster's folder: what survives a restart."""

STAND_IN = "planner"
"""The rule that decides in the place of a network that is behind it: see `Policies.stand_in`."""

_AGREEMENT_SLOTS = 100

Maker = Callable[[str], AllocationPolicy]
"""A new policy by its name; raises BadInput where there is none of that name, or it cannot be used."""


@dataclass(frozen=True)
class PolicyChoice:
    """A `PolicyChoice` is what survives a restart of the scheduler.

    Attributes:
        policy: the policy that was asked for, by its name.
        shadow: the shadow that decides beside it; "": none.
        fallen: why the fallback decides in its place; "": it does not.
        stands_in: why `STAND_IN` decides in its place; "": it does not.
    """

    policy: str
    shadow: str = ""
    fallen: str = ""
    stands_in: str = ""


@dataclass(frozen=True)
class SlotPolicies:
    """`SlotPolicies` are the policies that one slot is decided by.

    Attributes:
        name: the name of the policy that decides.
        policy: decides.
        fallback_name: the name of the fallback.
        fallback: decides where the policy fails.
        shadow_name: the name of the shadow; "": there is none.
        shadow: decides beside it, without acting.
    """

    name: str
    policy: AllocationPolicy
    fallback_name: str
    fallback: AllocationPolicy
    shadow_name: str
    shadow: AllocationPolicy | None


class Policies:
    """`Policies` keep the policies of one cluster.

    They are safe from several threads; the policies themselves are asked by one.

    Args:
        make: see `Maker`.
        fallback: name of the policy that decides where the other cannot be trusted.
        folder: the folder of the cluster.
        asked: name of the policy that is to decide; None: the one that did last, on a new cluster the fallback.

    Attributes:
        uses: how often somebody has chosen a policy since this process began, the same one too.

    Raises:
        BadInput: the policy cannot be used, or the folder.
    """

    def __init__(self, make: Maker, fallback: str, folder: Path, asked: str | None = None):
        self._lock = threading.RLock()
        self.uses = 0
        self._make, self._file = make, folder / POLICY_FILE
        self.fallback_name, self.fallback = fallback, make(fallback)
        self._choice = self._stored() or PolicyChoice(asked or fallback)
        self._policy: AllocationPolicy | None = None
        self._shadow: AllocationPolicy | None = None
        self._stand_in: AllocationPolicy | None = None
        self._comes_in = ""  # why one that is being made is to stand in; "": it is not
        self._maker: threading.Thread | None = None
        self._fault = ""
        self._agreed: deque[tuple[int, int]] = deque(maxlen=_AGREEMENT_SLOTS)
        if asked is not None:
            self._policy = make(asked)
            if asked != self._choice.policy:
                shadow = "" if asked == self._choice.shadow else self._choice.shadow
                self._choice = replace(self._choice, policy=asked, shadow=shadow, fallen="", stands_in="")
        self._load()
        self._write(self._choice)

    # ---- people, from any thread -----------------------------------------------------------------------------------

    def use(self, name: str) -> None:
        """Decide by another policy from the next slot on, or by the same anew where it has fallen back or changed.

        Raises:
            BadInput: it cannot be used.
        """
        made = self._make(name)  # before the lock, which the loop needs: somebody's own code may take long
        with self._lock:
            promoted = name == self._choice.shadow and self._shadow is not None
            policy = self._shadow if promoted else made
            shadow = "" if name == self._choice.shadow else self._choice.shadow
            self._write(PolicyChoice(name, shadow))
            self._policy, self._stand_in, self._comes_in, self._fault = policy, None, "", ""
            self._shadow = self._shadow if shadow else None
            self._agreed.clear()
            self.uses += 1
        log.warning("policy: %s decides from the next slot on", name)

    def use_shadow(self, name: str) -> None:
        """Let another policy decide beside, without acting; "" lets none do so any more.

        Raises:
            BadInput: it cannot be used.
            ClusterRefused: it decides already.
        """
        shadow = self._make(name) if name else None
        with self._lock:
            if name == self._choice.policy and not self._choice.fallen:
                raise ClusterRefused(f"{name} decides already: give another policy")
            self._write(replace(self._choice, shadow=name))
            self._shadow = shadow
            self._agreed.clear()
        log.warning("policy: %s", f"{name} decides beside, without acting" if name else "no shadow any more")

    @property
    def choice(self) -> PolicyChoice:
        """As it is now."""
        with self._lock:
            return self._choice

    def in_use(self, prefix: str) -> str | None:
        """Return the policy that was asked for, or else its shadow, whose name begins so; None: neither does."""
        choice = self.choice
        return next((name for name in (choice.policy, choice.shadow) if name.startswith(prefix)), None)

    @property
    def deciding(self) -> str:
        """Name of the policy that decides."""
        with self._lock:
            fallen = self._choice.fallen and self._stand_in is None
            return self.fallback_name if fallen or self._fault else self._asked

    @property
    def _asked(self) -> str:
        """Name of the policy that is asked first."""
        return self._choice.policy if self._stand_in is None else STAND_IN

    @property
    def trouble(self) -> str:
        """Why the policy that was asked for is not trusted; "": it is."""
        with self._lock:
            return self._choice.fallen or self._fault

    @property
    def agreement(self) -> float | None:
        """Part of the grants of the last 100 slots with jobs that the shadow would have made too; None: not known."""
        with self._lock:
            total = sum(jobs for _, jobs in self._agreed)
            return sum(same for same, _ in self._agreed) / total if total else None

    # ---- the loop --------------------------------------------------------------------------------------------------

    def for_slot(self) -> SlotPolicies:
        """Return the policies of the slot that begins."""
        with self._lock:
            fallback = self.fallback_name, self.fallback
            shadow = (self._choice.shadow, self._shadow) if self._shadow is not None else ("", None)
            deciding = self._stand_in or (None if self._choice.fallen else self._policy)
            if deciding is None:
                return SlotPolicies(*fallback, *fallback, *shadow)
            return SlotPolicies(self._asked, deciding, *fallback, *shadow)

    def fall_back(self, reason: str) -> None:
        """Decide by the fallback, until somebody chooses anew, or the policy comes back."""
        with self._lock:
            if not self._choice.fallen:
                self._keep(replace(self._choice, fallen=reason))
                instead = self.fallback_name if self._stand_in is None else STAND_IN
                log.error("policy: %s DECIDES INSTEAD OF %s: %s", instead, self._choice.policy, reason)

    def come_back(self, reason: str) -> None:
        """Decide by the policy that was asked for again; where it cannot be used, or written down, nothing changes."""
        with self._lock:
            choice = self._choice
            if not choice.fallen:
                return
            try:
                policy = self._make(choice.policy)
                self._write(replace(choice, fallen=""))
            except BadInput as error:
                log.error("policy: %s cannot decide again: %s", choice.policy, error)  # noqa: TRY400  # for operators
                return
            self._policy, self._fault = policy, ""
            again = "DECIDES AGAIN" if self._stand_in is None else f"is trusted again, while {STAND_IN} stands in"
            log.warning("policy: %s %s: %s", choice.policy, again, reason)

    def stand_in(self, policy: str, reason: str) -> None:
        """Decide by `STAND_IN` in the place of a policy that is sound, and goes on learning, from a later slot on.

        It begins with the reports of a thousand slots, which are read beside the loop.

        Args:
            policy: in whose place, or in that of the fallback; nothing changes where it is not the one that was asked
                for.
            reason: why, for people.
        """
        with self._lock:
            if policy != self._choice.policy:
                return
            if self._stand_in is not None:
                self._keep(replace(self._choice, stands_in=reason))  # the last comparison is what people see
                return
            self._comes_in = reason
            if self._maker is None:
                maker = threading.Thread(target=self._make_stand_in, name="stand-in", daemon=True)
                try:
                    maker.start()
                except RuntimeError as error:  # as many threads as there may be: the next comparison tries again
                    self._comes_in = ""
                    log.error("policy: %s cannot stand in: %s", STAND_IN, error)  # noqa: TRY400  # for operators
                    return
                self._maker = maker

    def _make_stand_in(self) -> None:
        made: AllocationPolicy | None = None
        try:
            made = self._make(STAND_IN)
        except Exception:
            log.exception("policy: %s cannot stand in", STAND_IN)
        with self._lock:
            reason, self._comes_in, self._maker = self._comes_in, "", None
            if made is not None and reason:
                self._stand_in = made
                self._keep(replace(self._choice, stands_in=reason))
                log.warning("policy: %s STANDS IN FOR %s: %s", STAND_IN, self._choice.policy, reason)

    def end_stand_in(self, reason: str) -> None:
        """Let nobody stand in any more, from the next slot on; `reason`: why, for people."""
        with self._lock:
            self._comes_in = ""
            if self._stand_in is None:
                return
            self._stand_in = None
            self._keep(replace(self._choice, stands_in=""))
            decides = self.fallback_name if self._choice.fallen else self._choice.policy
            log.warning("policy: %s decides, and %s stands in no more: %s", decides, STAND_IN, reason)

    def decided(self, slot: int, fault: str) -> None:
        """Note what was wrong with the policy's answer; "": nothing."""
        with self._lock:
            self._fault = f"slot {slot}: {fault}" if fault else ""
            if fault:
                log.error("policy: %s decided slot %d: %s: %s", self.fallback_name, slot, self._asked, fault)

    def compared(self, name: str, decided: Allocation, shadow: Allocation) -> None:
        """Note how far a shadow decided alike.

        Args:
            name: the name of the shadow; somebody may have chosen another meanwhile.
            decided: what the policy wanted.
            shadow: what the shadow wanted.
        """
        wanted = {job: (grant.workers, grant.servers) for job, grant in decided.grants.items()}
        same = [wanted[job] == (grant.workers, grant.servers) for job, grant in shadow.grants.items()]
        with self._lock:
            if name == self._choice.shadow and same:  # slots without jobs would push out all others
                self._agreed.append((sum(same), len(same)))

    def renew(self, name: str) -> None:
        """Read a policy's weights anew where it is used; where they cannot be used, the fallback decides."""
        with self._lock:
            choice = self._choice
            if name not in (choice.policy, choice.shadow):
                return
            try:
                policy = self._make(name)
            except BadInput as error:
                if name == choice.shadow and self._shadow is not None:
                    log.warning("policy: the shadow no longer decides: %s", error)
                    self._shadow = None
                if name == choice.policy:
                    self.fall_back(str(error))
                return
            self._policy = policy if name == choice.policy else self._policy
            self._shadow = policy if name == choice.shadow else self._shadow

    # ---- what survives ---------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Make the policies of the choice; where one cannot be used any more, the fallback decides for the jobs."""
        try:
            self._policy = self._policy or self._make(self._choice.policy)
        except BadInput as error:
            self.fall_back(str(error))
        if self._choice.stands_in:
            self._stand_in = self._make(STAND_IN)
        try:
            self._shadow = self._make(self._choice.shadow) if self._choice.shadow else None
        except BadInput as error:
            log.warning("policy: no shadow any more: %s", error)
            self._choice = replace(self._choice, shadow="")

    def _stored(self) -> PolicyChoice | None:
        try:
            stored = json.loads(read_text(self._file))
            if not all(isinstance(value, str) for value in stored.values()):
                raise TypeError("a value is no text")
            return PolicyChoice(**stored)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput(f"cannot use {self._file}: {error}: delete it, and choose by --policy") from error

    def _keep(self, choice: PolicyChoice) -> None:
        """Go on by a choice, written down or not: the loop does not wait for a disk."""
        try:
            self._write(choice)
        except BadInput as error:
            self._choice = choice
            log.error("policy: it would be as before after a restart: %s", error)  # noqa: TRY400  # for operators

    def _write(self, choice: PolicyChoice) -> None:
        text = json.dumps(asdict(choice), indent=2) + "\n"
        try:
            write_whole(self._file, text.encode(), self._file.with_suffix(".partial"))
        except OSError as error:
            raise BadInput(f"cannot write {self._file}: {error.strerror}") from error
        self._choice = choice
