"""A `StepContext` holds the state as one step changes it, and the effects so far. It lives for one call of `step`."""

from typing import Any

from coordinator.core.batches.async_batches import Book
from coordinator.core.effects import Effect, Log, Refuse, Reply, Why
from coordinator.core.job import DurableJob, RegisteredNode
from coordinator.core.plans.plan import Plan
from coordinator.core.records import changed
from coordinator.core.replies import CallerReply
from coordinator.core.state import PlanAnswers, State
from elastic_ps.core.configuration import NodeId


class StepContext:
    """A context holds the state as one step changes it, and the effects so far.

    Attributes:
        state: so far.
        now: the event's time.
        effects: so far, without what is derived from the state.
        closed: plans that have ended or changed after their end.
    """

    def __init__(self, state: State, now: float):
        self.state = state
        self.now = now
        self.effects: list[Effect] = []
        self.closed: list[Plan] = []

    @property
    def job(self) -> DurableJob:
        """The durable part."""
        return self.state.job

    @property
    def answers(self) -> PlanAnswers:
        """Answers in the plan under way."""
        return self.state.answers

    @property
    def plan(self) -> Plan:
        """The plan under way; callers know that there is one."""
        assert self.state.job.plan is not None
        return self.state.job.plan

    def live(self, **changes: Any) -> None:
        """Change the volatile part."""
        self.state = changed(self.state, **changes)

    def durable(self, **changes: Any) -> None:
        """Change the job."""
        self.live(job=changed(self.job, **changes))

    def keep(self, book: Book) -> None:
        """Change the book of batches, which is durable too."""
        self.live(book=book)

    def replan(self, **changes: Any) -> None:
        """Change the plan under way."""
        self.durable(plan=changed(self.plan, **changes))

    def note_answers(self, **changes: Any) -> None:
        """Change what nodes have answered."""
        self.live(answers=changed(self.answers, **changes))

    def node(self, name: NodeId, **changes: Any) -> None:
        """Change a node, where it is still there."""
        node: RegisteredNode | None = self.job.nodes.get(name)
        if node is not None:
            self.durable(nodes={**self.job.nodes, name: changed(node, **changes)})

    def close(self, plan: Plan) -> None:
        """Put a plan into the history, without its configurations."""
        ended = changed(plan, base=None, target=None, audience=(), absorbed=(), ended=plan.ended or self.now)
        kept = tuple(old for old in self.state.history if old.id != plan.id)
        self.live(history=(*kept, ended))
        self.closed.append(ended)
        outcome = f": {plan.reason}" if plan.reason else ""
        self.log(f"plan {plan.id} {plan.phase} ({plan.cause}){outcome}")

    def reply(self, to: int, reply: CallerReply) -> None:
        """Answer a caller."""
        self.effects.append(Reply(to, reply))

    def refuse(self, to: int, text: str, why: Why = Why.PRECONDITION) -> None:
        """Answer a caller with no.

        Args:
            to: the caller.
            text: why, for people.
            why: of which kind the refusal is.
        """
        self.effects.append(Refuse(to, why, text))

    def turns_away(self, to: int, node: NodeId) -> bool:
        """Answer a call of a node with no where it has been told to end; return whether it has."""
        if not self.job.nodes[node].departing:
            return False
        self.refuse(to, f"{node} has no part in the job any more: {self.job.reason}", Why.ENDING)
        return True

    def log(self, text: str, warning: bool = False) -> None:
        """Tell people."""
        self.effects.append(Log(text, warning))
