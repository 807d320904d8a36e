"""This module asks a placement policy of a live cluster, whatever it does: raise, hang, or answer what cannot be done.

Then a fallback places that has been proven, for this time only, and says why. A policy is asked in a thread of its own,
so that one that hangs keeps nobody; it is not asked again until that thread has come back.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import PlacementView, Places, check_placement, plain_places
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.cluster.placement.task_moves import MoveTerms, TaskMove, check_moves
from dl2_scheduler.cluster.policy_words import words

log = logging.getLogger(__name__)

SECONDS = 30.0
"""Within which a policy has to answer and say why, by default; and whatever it is asked while a slot waits for it."""

Answer = TypeVar("Answer")


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

    def moves(self, view: PlacementView, terms: MoveTerms, nodes: Sequence[str]) -> Sequence[TaskMove]:
        """Return which running tasks would be better elsewhere, by what it knows of speeds.

        Args:
            view: of the cluster, in which no task misses a place.
            terms: what may be moved.
            nodes: their names.
        """


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
    """A `GuardedPlacement` lets a policy place, and the fallback where it fails. It is safe from several threads.

    Args:
        policy: is asked.
        fallback: is trusted.
        seconds: within which the policy has to answer, and say why.
        now: seconds, of a clock that never goes back.
    """

    def __init__(
        self,
        policy: ExplainedPlacement,
        fallback: ExplainedPlacement,
        seconds: float = SECONDS,
        now: Callable[[], float] = time.monotonic,
    ):
        self._policy, self._fallback, self._seconds, self._now = policy, fallback, seconds, now
        self._slot_ends = self._ends = float("inf")
        self._one_at_a_time = threading.Lock()
        self._asked: threading.Thread | None = None
        self._told: set[str] = set()
        self._fault = self._unmoved = ""

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self._policy.name

    @contextmanager
    def one_slot(self) -> Iterator[None]:
        """Let all that is asked in this context together take no longer than one answer may: a slot waits for it."""
        self._slot_ends = self._now() + self._seconds
        try:
            yield
        finally:
            self._slot_ends = float("inf")

    def place(self, view: PlacementView, nodes: Sequence[str]) -> PlacementAnswer:
        """Return a placement that can be done.

        Args:
            view: of the cluster.
            nodes: their names.
        """
        if not view.missing.any():
            return PlacementAnswer(Places())
        with self._one_at_a_time:
            self._ends = self._now() + self._seconds
            self._tell_unknown(view.models)

            def ask() -> Places:
                places = self._asked_for(lambda: plain_places(self._policy.place(view.copied())))
                check_placement(view, places)  # what the policy writes into its view concerns nobody else
                return places

            found = self._tried(ask)
            if not isinstance(found, str):
                return self._tell(PlacementAnswer(found, self._reasons(view, found, nodes)))
            places = self._fallback.place(view)
            check_placement(view, places)
            said = f"{self._fallback.name} placed it, as {self.name} failed: {found}"
            reasons = self._fallback.explain(view, places, nodes)
            return self._tell(PlacementAnswer(places, {job: f"{reasons[job]}; {said}" for job in places.groups}, found))

    def moves(self, view: PlacementView, terms: MoveTerms, nodes: Sequence[str]) -> tuple[TaskMove, ...]:
        """Return moves that can be done; none where the policy fails, and the log says why.

        Args:
            view: of the cluster, in which no task misses a place.
            terms: what may be moved.
            nodes: their names.
        """

        def ask() -> tuple[TaskMove, ...]:
            moves = tuple(self._asked_for(lambda: self._policy.moves(view.copied(), terms, nodes)))
            check_moves(view, moves, terms)
            return moves

        if not self._one_at_a_time.acquire(timeout=self._seconds):
            return self._not_moved(f"it has been asked to place for {self._seconds:g} s")
        try:
            self._ends = self._now() + self._seconds
            found = self._tried(ask)
            return self._not_moved(found) if isinstance(found, str) else self._not_moved("") or found
        finally:
            self._one_at_a_time.release()

    def _not_moved(self, fault: str) -> tuple[TaskMove, ...]:
        """Return no moves; log why when that changes."""
        if fault and fault != self._unmoved:
            log.error("placement: no task is moved: %s: %s", self.name, fault)
        self._unmoved = fault
        return ()

    def _tried(self, ask: Callable[[], Answer]) -> Answer | str:
        """Return what a call answers, or what is wrong with it."""
        try:
            return ask()
        except (BadInput, TimeoutError) as error:
            return words(error)
        except _Raised as error:
            log.exception("placement: %s has failed", self.name)
            return words(error)
        except Exception as error:  # what it answered cannot even be checked
            log.exception("placement: %s has failed", self.name)
            return f"its answer raised {type(error).__name__}: {words(error)}"

    def _asked_for(self, question: Callable[[], Answer]) -> Answer:
        """Ask the policy in a thread. Raises TimeoutError, BadInput where it says so, else _Raised."""
        if self._asked is not None and self._asked.is_alive():
            raise TimeoutError("it has not answered since it was asked before")
        left = min(self._ends, self._slot_ends) - self._now()
        if left <= 0:
            raise TimeoutError(f"what it was asked before took the {self._seconds:g} s that it has")
        answers: queue.SimpleQueue[tuple[Answer] | BaseException] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((question(),))
            except BaseException as error:  # noqa: BLE001  # it is raised where it was asked
                answers.put(error)

        self._asked = threading.Thread(target=ask, name="placement", daemon=True)
        self._asked.start()
        try:
            found = answers.get(timeout=left)
        except queue.Empty:
            raise TimeoutError(f"it has not answered within {self._seconds:g} s") from None
        self._asked = None  # it has answered, though its thread may live on for a moment
        if isinstance(found, BadInput):
            raise found
        if isinstance(found, BaseException):
            raise _Raised(f"it raised {type(found).__name__}: {found}") from found
        return found[0]

    def _reasons(self, view: PlacementView, places: Places, nodes: Sequence[str]) -> dict[int, str]:
        """Return why, for each job that got places; words that fail, or take too long, are no reason not to place."""
        found = self._tried(lambda: dict(self._asked_for(lambda: self._policy.explain(view.copied(), places, nodes))))
        if isinstance(found, str):
            log.error("placement: %s cannot explain its choice: %s", self.name, found)
            found = {}
        return {job: words(found.get(job, f"placed by {self.name}")) for job in places.groups}

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
