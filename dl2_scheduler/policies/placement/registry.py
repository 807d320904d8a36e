"""This module makes placement policies by their names, and says of a wrong name which there are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.cluster.placement.task_moves import MoveTerms, TaskMove
from dl2_scheduler.policies.learnt.graph.agent_files import open_agents
from dl2_scheduler.policies.learnt.placer_files import open_placer
from dl2_scheduler.policies.learnt_names import named_folder
from dl2_scheduler.policies.placement.annealing import Annealing
from dl2_scheduler.policies.placement.balance import BestFit, LoadBalancing, TetrisDot
from dl2_scheduler.policies.placement.explain import explain, where
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill, GroupRule, JobOrder
from dl2_scheduler.policies.placement.least_interference import LeastInterference
from dl2_scheduler.policies.placement.local_search import LocalSearch, progress_rate
from dl2_scheduler.policies.placement.moving import propose_moves
from dl2_scheduler.policies.placement.node_rules import NODE_RULES, SPREAD
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.policies.placement.speed_model import PROFILES_FILE, SpeedModel, open_speed_model
from dl2_scheduler.policies.user_policy import is_own, make_own_placement

SHORTEST = "-shortest"
"""What the name of a rule ends with that places short jobs first, and lets others by where one does not fit."""

LEARNT, AGENTS = "learnt", "agents"
LOOK_AHEAD = "look-ahead"
"""What looks ahead before it places: only simulations can have it, see `commands.simulation.look_ahead`."""

_RULES: Mapping[str, Callable[[], GroupRule]] = {
    "load-balance": LoadBalancing,
    "best-fit": BestFit,
    "tetris-dot": TetrisDot,
}
_LIKE = {"spread": "load-balance", "pack": "best-fit"}


@dataclass(frozen=True)
class NamedPlacement:
    """See `PlacementPolicy`: one with its name, and with what it knows, by which its choices are explained.

    Attributes:
        name: by which people choose it.
        policy: decides, in the numbers of `knows`.
        knows: what was fitted; None: it needs nothing.
    """

    name: str
    policy: PlacementPolicy
    knows: SpeedModel | None = None

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        return self.policy.place(view if self.knows is None else self.knows.view_of(view))

    def explain(self, view: PlacementView, places: Places, nodes: Sequence[str]) -> dict[int, str]:
        """Return a sentence for each job that got places, by its index in the view.

        Args:
            view: that it saw.
            places: what it answered.
            nodes: their names.
        """
        if self.knows is not None and self.knows.speeds is not None:
            return explain(self.knows.view_of(view), places, self.knows, nodes)
        return {job: f"{where(view, roles, nodes)} by {self.name}" for job, roles in places.groups.items()}

    def moves(self, view: PlacementView, terms: MoveTerms, nodes: Sequence[str]) -> tuple[TaskMove, ...]:
        """Return which running tasks would be better elsewhere; none where it knows no speeds.

        Args:
            view: of the cluster.
            terms: what may be moved.
            nodes: their names.
        """
        if self.knows is None or self.knows.speeds is None:
            return ()
        return propose_moves(self.knows.view_of(view), self.knows, terms, nodes)

    def unknown(self, models: Sequence[str]) -> list[str]:
        """Return those of some types that it was not fitted to, and which it places by their demands alone."""
        return [] if self.knows is None else [model for model in models if model not in self.knows.models]


def _lif(model: SpeedModel, own_first: bool) -> GroupRule:
    return LeastInterference(_with_interference(model), own_first)


def _lif_filling(model: SpeedModel, own_first: bool, order: JobOrder) -> PlacementPolicy:
    return GreedyFill(_lif(model, own_first), order, skipping=order is JobOrder.SHORTEST)


def _starts(model: SpeedModel) -> list[GroupRule]:
    """Return the rules whose places planners begin with."""
    starts: list[GroupRule] = [LoadBalancing(), BestFit()]
    return starts if model.interference is None else [*starts, _lif(model, own_first=True)]


def local_search(model: SpeedModel) -> LocalSearch:
    """Return the planner that learnt policies imitate. Raises BadInput: the model has no speeds."""
    return LocalSearch(_with_speeds(model), _starts(model))


_FITTED: Mapping[str, Callable[[SpeedModel], PlacementPolicy]] = {
    "lif-lb": lambda model: _lif_filling(model, False, JobOrder.ARRIVAL),
    "lif-own": lambda model: _lif_filling(model, True, JobOrder.ARRIVAL),
    f"lif-lb{SHORTEST}": lambda model: _lif_filling(model, False, JobOrder.SHORTEST),
    f"lif-own{SHORTEST}": lambda model: _lif_filling(model, True, JobOrder.SHORTEST),
    "local-search": local_search,
    "annealing": lambda model: Annealing(local_search(model)),
    "pod-search": lambda model: PodSearch(_with_speeds(model), _starts(model)),
    "pod-search-wait": lambda model: PodSearch(_with_speeds(model), _starts(model), progress_rate, may_wait=True),
}

PLACEMENT_NAMES = (
    *(name + order for order in ("", SHORTEST) for name in _RULES),
    *(f"{name}:MODEL" for name in _FITTED),
    f"{LEARNT}:RUN",
    f"{AGENTS}:RUN",
    "MODULE:CLASS",
)
"""The names that `make_placement` knows."""


def is_policy_name(name: str) -> bool:
    """Return whether a name is a placement policy's, as it looks: nothing is opened."""
    kind, colon, _ = name.partition(":")
    if colon:
        return kind in _OF_FOLDERS or kind == LOOK_AHEAD or is_own(name)
    return kind.removesuffix(SHORTEST) in _RULES


def folder_of(name: str) -> Path | None:
    """Return the folder that a policy's name has, None where it has none. Raises BadInput: it is in no user's home."""
    kind, colon, path = name.partition(":")
    return named_folder(path) if colon and kind in _OF_FOLDERS else None


def make_placement(name: str) -> NamedPlacement:
    """Make a placement policy, which has placed nothing yet.

    Args:
        name: one of `PLACEMENT_NAMES`.

    Raises:
        BadInput: it is none of these, or there is no such policy or file.
    """
    kind, colon, path = name.partition(":")
    if colon and kind in _FITTED:
        model = _opened(name, named_folder(path))
        return NamedPlacement(name, _FITTED[kind](model), model)
    if colon and kind in _LEARNT:
        return _learnt(name, named_folder(path), *_LEARNT[kind](named_folder(path)))
    if colon and kind == LOOK_AHEAD:
        raise BadInput(f"{name} places in dl2 simulate and dl2 evaluate --world alone: give {LEARNT}:{path} here")
    if is_own(name):
        return NamedPlacement(name, make_own_placement(name))
    rule, shortest = name.removesuffix(SHORTEST), name.endswith(SHORTEST)
    if rule in _RULES:
        order = JobOrder.SHORTEST if shortest else JobOrder.ARRIVAL
        return NamedPlacement(name, GreedyFill(_RULES[rule](), order, skipping=shortest))
    if name in NODE_RULES:
        raise BadInput(f"{name} counts tasks and knows no places: give {_LIKE.get(name, 'load-balance')} here")
    raise BadInput(f"unknown placement {name}: give one of {', '.join(PLACEMENT_NAMES)}")


def spread_placement() -> NamedPlacement:
    """Return what places where a policy fails: the least used group, jobs by arrival, each by itself."""
    return NamedPlacement(SPREAD, GreedyFill(LoadBalancing(), skipping=True))


def _placer(run: Path) -> tuple[PlacementPolicy, SpeedModel]:
    found = open_placer(run)
    return found.placer, SpeedModel(found.models, speeds=found.speeds)


def _agents(run: Path) -> tuple[PlacementPolicy, SpeedModel]:
    found = open_agents(run)
    return found.agents, SpeedModel(found.models)


_LEARNT: Mapping[str, Callable[[Path], tuple[PlacementPolicy, SpeedModel]]] = {LEARNT: _placer, AGENTS: _agents}
_OF_FOLDERS = frozenset({*_FITTED, *_LEARNT})


def _learnt(name: str, run: Path, policy: PlacementPolicy, known: SpeedModel) -> NamedPlacement:
    """Return what a run has learnt, with what else is in its folder. Raises BadInput: that is of another run."""
    if (run / PROFILES_FILE).exists():
        models, known = known.models, _opened(name, run)
        if known.models != models:
            raise BadInput(f"{run}: {PROFILES_FILE} knows other models than the policy: they are of different runs")
    return NamedPlacement(name, policy, known)


def _opened(name: str, folder: Path) -> SpeedModel:
    try:
        return open_speed_model(folder)
    except BadInput as error:
        raise BadInput(f"placement {name}: {error}") from error


def _with_interference(model: SpeedModel) -> SpeedModel:
    if model.interference is None:
        raise BadInput("LIF needs coefficients of interference, which the folder's profiles.json has not: fit it anew")
    return model


def _with_speeds(model: SpeedModel) -> SpeedModel:
    if model.speeds is None:
        raise BadInput("a planner needs a model of speeds, and the folder has no speeds.npz: give another, or use LIF")
    return model
