"""This module has the options of `dl2 serve`, in groups of those that belong together."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.backends.local.tasks.isolation import IsolationMode
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.commands.cluster.kube_target import Context, Kube
from dl2_scheduler.guard.decision import GuardSettings
from dl2_scheduler.learning.live.refit import model_to_refit
from dl2_scheduler.live.slot_limits import SlotLimits
from dl2_scheduler.policies.placement.node_rules import NODE_RULES, SPREAD, placement_rule
from dl2_scheduler.policies.placement.registry import folder_of, spread_placement
from dl2_scheduler.policies.placement.rehearse import rehearse
from dl2_scheduler.policies.placement.reopened import following

_KNOWS_NO_SPEEDS = (
    "knows no speeds by which a move could be costed: give --placement learnt:RUN or local-search:MODEL, or leave "
    "--move-tasks out"
)
_EXPLORED_WHILE_LEARNING, _MOST_EXPLORED = 0.02, 0.5  # parts of a cluster's capacity


@dataclass(frozen=True)
class Pages:
    """`Pages` say where programs that watch this one are answered."""

    metrics: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS:]PORT", help="For Prometheus; port 0: a free one, which the log tells."),
    ] = None
    probes: Annotated[
        str | None, typer.Option(metavar="[ADDRESS:]PORT", help="For /healthz and /readyz, with --kube.")
    ] = None


@dataclass(frozen=True)
class Placing:
    """`Placing` says which nodes tasks run on, and whether they move."""

    placement: Annotated[
        str, typer.Option(help="spread, pack, round-robin, or a placement policy: a wrong one lists them.")
    ] = SPREAD
    move_tasks: Annotated[
        int, typer.Option(metavar="N", help="Running tasks moved to other nodes in a slot where it pays; 0: none.")
    ] = 0
    refit: Annotated[
        bool, typer.Option("--refit", help="The placement policy's model of speeds is fitted anew to live slots.")
    ] = False

    @property
    def found(self) -> tuple[NodeRule, GuardedPlacement | None]:
        """The rule, and the placement policy; None: the rule decides. Raises BadInput."""
        return placed_by(self.placement, self.move_tasks)

    @property
    def model(self) -> Path | None:
        """The folder of the model of speeds that is fitted anew; None: none is. Raises BadInput."""
        return model_to_refit(self.placement) if self.refit else None


@dataclass(frozen=True)
class Learning:
    """`Learning` says what the cluster learns, and what that may cost it."""

    learn: Annotated[bool, typer.Option("--learn", help="The policy, dl2:RUN, goes on learning.")] = False
    learn_cores: Annotated[
        int, typer.Option(min=0, max=1, help="Cores that learning takes its share of; 0: only what nobody else uses.")
    ] = 0
    explore: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Of the cluster, that jobs run as tells most; 0: none. Left out: 2% with --learn, else 0.",
        ),
    ] = None
    share_with: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Clusters that learn tell each other there what they learnt."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what is of learning alone where nothing learns."""
        if self.share_with is not None and not self.learn:
            raise BadInput("--share-with shares what is learnt: give --learn too, or leave it out")
        if self.learn_cores and not self.learn:
            raise BadInput("--learn-cores is what learning takes: give --learn too, or leave it out")

    @property
    def explored(self) -> float:
        """The part of the cluster that jobs run in for the sake of learning. Raises BadInput."""
        return explored_part(self.explore, self.learn)


@dataclass(frozen=True)
class ThisMachine:
    """`ThisMachine` says what a cluster of this machine has for its tasks."""

    slots: Annotated[
        str | None, typer.Option(metavar="NODESxSLOTS", help="Virtual nodes and the task slots of each: 2x8.")
    ] = None
    isolation: Annotated[IsolationMode, typer.Option(help="By which tasks keep to their share of the cores.")] = (
        IsolationMode.AUTO
    )

    @property
    def given(self) -> bool:
        """Return whether anybody asks for such a cluster."""
        return self.slots is not None or self.isolation is not IsolationMode.AUTO


@dataclass(frozen=True)
class Kubernetes:
    """`Kubernetes` says which cluster's ElasticJobs are served, if it is no cluster of this machine."""

    kube: Kube = False
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whose ElasticJobs are served, with --kube; may be repeated. Left out: all."),
    ] = None
    context: Context = None


@dataclass(frozen=True)
class Caution:
    """`Caution` keeps a policy from harm, as the options say."""

    most_changes: Annotated[int, typer.Option(help="Tasks that start or end in a slot, of all jobs.")] = 1000
    least_slots: Annotated[int, typer.Option(help="From one scaling of a job to its next.")] = 1
    guard_slots: Annotated[int, typer.Option(help="Bad slots in a row that end a learnt policy; 0: no guard.")] = 5
    guard_margin: Annotated[float, typer.Option(help="Part by which a bad slot is worse than drf's.")] = 0.1

    @property
    def limits(self) -> SlotLimits:
        """The limits of what may change in a slot. Raises BadInput."""
        if self.most_changes < 2:
            raise BadInput(f"--most-changes is {self.most_changes}: give at least 2, a worker and a server")
        if self.least_slots < 1:
            raise BadInput(f"--least-slots is {self.least_slots}: give at least 1, which means every slot")
        return SlotLimits(self.most_changes, self.least_slots)

    @property
    def guard(self) -> GuardSettings | None:
        """The settings of the guard; None: there is no guard. Raises BadInput."""
        slots, margin = self.guard_slots, self.guard_margin
        if slots < 0 or not 0 <= margin < float("inf"):
            raise BadInput(
                f"--guard-slots is {slots}, --guard-margin {margin}: give numbers from 0 on; 0 slots: no guard"
            )
        return GuardSettings(margin, slots) if slots else None


def placed_by(name: str, most_moves: int = 0) -> tuple[NodeRule, GuardedPlacement | None]:
    """Return the rule and the placement policy that `--placement` names.

    Args:
        name: of either.
        most_moves: tasks that it may move in a slot, as `--move-tasks` says.

    Raises:
        BadInput: there is no such policy, or it cannot move tasks.
    """
    if most_moves < 0:
        raise BadInput(f"--move-tasks is {most_moves}: give how many tasks may be moved in a slot; 0: none")
    if name in NODE_RULES:
        if most_moves:
            raise BadInput(f"{name} {_KNOWS_NO_SPEEDS}")
        return placement_rule(name), None
    try:
        policy = following(name, folder_of(name))
    except BadInput as error:
        raise BadInput(f"--placement: {error}; or a rule that counts: {', '.join(NODE_RULES)}") from error
    if most_moves and (policy.knows is None or policy.knows.speeds is None):
        raise BadInput(f"{name} {_KNOWS_NO_SPEEDS}")
    rehearse(policy)
    return placement_rule(), GuardedPlacement(policy, spread_placement())


def explored_part(asked: str | None, learns: bool) -> float:
    """Return the part of a cluster that `--explore` names.

    Args:
        asked: in per cent, as 2% or 0.5; None: nobody has said.
        learns: whether the policy goes on learning.

    Raises:
        BadInput: it is no such part.
    """
    if asked is None:
        return _EXPLORED_WHILE_LEARNING if learns else 0.0
    try:
        part = float(asked.removesuffix("%")) / 100
    except ValueError:
        part = math.nan
    if not 0 <= part <= _MOST_EXPLORED:
        raise BadInput(
            f"--explore is {asked}: give the per cent of the cluster, from 0 to {_MOST_EXPLORED:.0%}, as in 2%; 0: none"
        )
    return part
