"""This module asks a placement policy of a live cluster, whatever it does: raise, hang, or answer what cannot be done.

Then a fallback places that has been proven, for this time only, and says why. A policy is asked in a thread of its own,
so that one that hangs keeps nobody; it is not asked again until that thread has come back.
"""

import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import PlacementView, Places, check_placement
from dl2_scheduler.cluster.interfaces import PlacementPolicy

log = logging.getLogger(__name__)

SECONDS = 30.0
"""Within which a policy has to answer, by default."""


class ExplainedPlacement(PlacementPolicy, Protocol):
    """An `ExplainedPlacement` is a placement policy that has a name, and says why it chose what it chose."""

    @property
    def name(self) -> str:
        """The name by which people choose it."""

    def explain(self, view: PlacementView, places: Places, nodes: Sequence[str]) -> dict[int, str]:
        """Return a sentence for each job that got places, by its index in the view.

        Args:
            view: that it saw.
            places: what it answered.
            nodes: their names.
        """

    def unknown(self, models: Sequence[str]) -> list[str]:
        """Return those of some types that it was not fitted to."""


@dataclass(frozen=True)
class PlacementAnswer:
    """A `PlacementAnswer` is what a policy decided, or the fallback in its stead.

    Attributes:
        places: that are to be taken.
        reasons: for each job that got places, by its index in the view.
        fault: what was wrong with the policy, so that the fallback decided; "": it decided itself.
    """

    places: Places
    reasons: Mapping[int, str] = field(default_factory=dict)
    fault: str = ""


class _Raised(Exception):
    """The policy has raised something, which may be what ends a thread or a program: that of its thread alone."""


class GuardedPlacement:
    """A `GuardedPlacement` lets a policy place, and the fallback where it fails.

    Args:
        policy: is asked.
        fallback: is trusted.
        seconds: within which the policy has to answer.
    """

    def __init__(self, policy: ExplainedPlacement, fallback: ExplainedPlacement, seconds: float = SECONDS):
        self._policy, self._fallback, self._seconds = policy, fallback, seconds
        self._asked: threading.Thread | None = None
        self._told: set[str] = set()
        self._fault = ""

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self._policy.name

    def place(self, view: PlacementView, nodes: Sequence[str]) -> PlacementAnswer:
        """Return a placement that can be done.

        Args:
            view: of the cluster.
            nodes: their names.
        """
        if not view.missing.any():
            return PlacementAnswer(Places())
        self._tell_unknown(view.models)
        try:
            places = self._answer(view.copied())  # what the policy writes into it concerns nobody else
            check_placement(view, places)
            return self._tell(PlacementAnswer(places, self._reasons(self._policy, view, places, nodes)))
        except BadInput as error:
            fault = str(error)
        except TimeoutError as error:
            fault = str(error)
        except _Raised as error:
            log.exception("placement: %s has failed", self.name)
            fault = str(error)
        except Exception as error:  # what it answered cannot even be checked
            log.exception("placement: %s has failed", self.name)
            fault = f"its answer raised {type(error).__name__}: {error}"
        places = self._fallback.place(view)
        check_placement(view, places)
        said = f"{self._fallback.name} placed it, as {self.name} failed: {fault}"
        reasons = self._reasons(self._fallback, view, places, nodes)
        return self._tell(PlacementAnswer(places, {job: f"{reasons[job]}; {said}" for job in places.groups}, fault))

    def _answer(self, view: PlacementView) -> Places:
        """Ask the policy in a thread. Raises TimeoutError, BadInput where it says so, else _Raised."""
        if self._asked is not None and self._asked.is_alive():
            raise TimeoutError("it has not answered since it was asked before")
        answers: queue.SimpleQueue[Places | BaseException] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._policy.place(view))
            except BaseException as error:  # noqa: BLE001  # it is raised where it was asked
                answers.put(error)

        self._asked = threading.Thread(target=ask, name="placement", daemon=True)
        self._asked.start()
        try:
            found = answers.get(timeout=self._seconds)
        except queue.Empty:
            raise TimeoutError(f"it has not answered within {self._seconds:g} s") from None
        self._asked = None  # it has answered, though its thread may live on for a moment
        if isinstance(found, BadInput):
            raise found
        if isinstance(found, BaseException):
            raise _Raised(f"it raised {type(found).__name__}: {found}") from found
        return found

    def _reasons(
        self, policy: ExplainedPlacement, view: PlacementView, places: Places, nodes: Sequence[str]
    ) -> dict[int, str]:
        """Return why, for each job that got places; words that fail are no reason not to place."""
        try:
            found = policy.explain(view, places, nodes)
        except Exception:
            log.exception("placement: %s cannot explain its choice", policy.name)
            found = {}
        return {job: found.get(job, f"placed by {policy.name}") for job in places.groups}

    def _tell_unknown(self, models: Sequence[str]) -> None:
        if new := set(self._policy.unknown(models)) - self._told:
            self._told |= new
            log.warning(
                "placement: %s knows nothing of the type%s %s: jobs of it are placed by what they ask for, and taken "
                "for nothing beside others",
                self.name,
                "s" * (len(new) > 1),
                ", ".join(sorted(new)),
            )

    def _tell(self, answer: PlacementAnswer) -> PlacementAnswer:
        """Log what is wrong with the policy when that changes."""
        if answer.fault and answer.fault != self._fault:
            log.error("placement: %s PLACES INSTEAD OF %s: %s", self._fallback.name, self.name, answer.fault)
        elif self._fault and not answer.fault:
            log.warning("placement: %s decides again", self.name)
        self._fault = answer.fault
        return answer
