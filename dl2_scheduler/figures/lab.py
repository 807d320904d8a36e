"""Where figures get their runs from: each is made once, kept in a folder, and gone on with where it was cut off."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.figures.recipes import Ours, Paper
from dl2_scheduler.figures.scale import FigureScale
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.paper.analytic import analytical
from dl2_scheduler.learning.paper.judging import cluster_of, completion_time
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.learnt.dl2 import learnt, load
from dl2_scheduler.policies.registry import make_policy

Times = list[float]
"""Mean completion time in slots of each sequence."""

Tell = Callable[[str], None]
"""Told what is done next."""

_FOREVER = 1e9  # seconds: learning ends by updates
_CURVE = "judged.json"
_AS_LEARNT: Mapping[str, float] = {}


@dataclass(frozen=True)
class TrainedPolicy:
    """A trained policy says where it is, and how it came there.

    Attributes:
        name: for people, and of the folder.
        folder: with the policy.
        curve: by update (of imitation: by pass), 0 included, on the first cluster's validation sequences.
    """

    name: str
    folder: RunFolder
    curve: Mapping[int, Times]


class Lab:
    """See the module.

    Args:
        out: folder of figures; runs are kept in `runs` there.
        speeds: true ones.
        scale: of the experiments.
        seed: of everything.
        tell: see `Tell`.

    Attributes:
        digest: of the speeds.
        trained_runs: how many runs were made or gone on with, not found.
    """

    def __init__(self, out: Path, speeds: Speeds, scale: FigureScale, seed: int, tell: Tell):
        self.scale, self.seed, self.trained_runs = scale, seed, 0
        self._runs, self._speeds, self._tell = out / "runs", speeds, tell
        self._analytical = analytical(speeds)
        self.digest = _digest_of(speeds)

    def ours(self, **fields: Any) -> Ours:
        """Return a recipe of our learning, of this scale and seed, but for `fields`."""
        scale = self.scale
        usual = {"updates": scale.updates, "judge_every": scale.judge_every, "settings": scale.ours}
        return Ours(**{**usual, "seed": self.seed, **fields})

    def paper(self, **fields: Any) -> Paper:
        """Return a recipe of the paper's learning, of this scale and seed, but for `fields`."""
        scale = self.scale
        usual = {"updates": scale.paper_updates, "judge_every": scale.paper_judge_every, "settings": scale.paper}
        return Paper(**{**usual, "seed": self.seed, **fields})

    def imitated(self, recipe: Ours | Paper) -> TrainedPolicy:
        """Return a recipe's policy before online learning."""
        recipe = recipe.imitation()
        run = self._run(recipe, "imitation")
        if not run.folder.checkpoint_file.exists():
            self._begin(run, recipe)
            judged, made = {}, None
            steps = recipe.imitate(
                self._lessons(recipe, 0), self._learnt_on(recipe), self.scale.imitated, self.scale.epochs
            )
            for epoch, made in enumerate(steps):
                self._tell(f"{run.name}: pass {epoch}")
                judged[epoch] = self._judge(learnt(made.weights))
            assert made is not None, "imitation yields at least the policy before it"
            _write(run.folder.path / _CURVE, judged)
            run.folder.save(made.weights, made.state)
        return self._run(recipe, "imitation")

    def trained(self, recipe: Ours | Paper) -> TrainedPolicy:
        """Return a recipe's policy after online learning."""
        before, run = self.imitated(recipe), self._run(recipe, "online")
        judged = dict(run.curve) or {0: before.curve[max(before.curve)]}
        due = [update for update in range(0, recipe.updates + 1, recipe.judge_every) if update not in judged]
        if due:
            self._begin(run, recipe)
        for update in due:
            self._tell(f"{run.name}: update {update} of {recipe.updates}")
            start = None if run.folder.checkpoint_file.exists() else before.folder
            lessons = self._lessons(recipe, update - recipe.judge_every)
            recipe.learner(run.folder, lessons, self._learnt_on(recipe), start).run(_FOREVER, update, _silent)
            judged[update] = self._judge(learnt(load(run.folder.path)))
            _write(run.folder.path / _CURVE, judged)
        return self._run(recipe, "online")

    def times(self, who: str | TrainedPolicy, cluster: int = 0, changed: Mapping[str, float] = _AS_LEARNT) -> Times:
        """Return what a policy takes on the sequences by which all are judged.

        Args:
            who: a baseline by its name, which knows nothing when a sequence begins; or a policy that was made.
            cluster: number of it.
            changed: variation, estimate_error: see `Lessons`.
        """
        name = who if isinstance(who, str) else who.name
        scale = self.scale
        by = sorted((key, part) for key, part in changed.items() if part)
        asked = [name, scale.clusters[cluster], scale.jobs, scale.sequences, by, self.digest]
        file = self._runs / f"times-{_digest(asked)}.json"
        if not file.exists():
            self._tell(f"{name}: {scale.sequences} sequences on {scale.clusters[cluster]} {dict(by) or ''}")
            self._runs.mkdir(parents=True, exist_ok=True)
            _write(file, self._times(who, scale.sequences, cluster, changed))
        found: Times = json.loads(file.read_text())
        return found

    def _times(
        self,
        who: str | TrainedPolicy | AllocationPolicy,
        count: int,
        cluster: int = 0,
        changed: Mapping[str, float] = _AS_LEARNT,
    ) -> Times:
        given: dict[str, Any] = dict(changed)
        lessons = Lessons((self.scale.nodes[cluster],), self.scale.jobs, **given)
        return [
            completion_time(cluster_of(episode, lessons, self._speeds), self._policy(who))
            for episode in lessons.validation(count)
        ]

    def _policy(self, who: str | TrainedPolicy | AllocationPolicy) -> AllocationPolicy:
        if isinstance(who, str):
            return make_policy(who, self._speeds)
        return learnt(load(who.folder.path)) if isinstance(who, TrainedPolicy) else who

    def _judge(self, policy: AllocationPolicy) -> Times:
        return self._times(policy, self.scale.validation)

    def _lessons(self, recipe: Ours | Paper, update: int) -> Lessons:
        return Lessons(self.scale.nodes, self.scale.jobs, seed=recipe.seed, models=recipe.models(update))

    def _learnt_on(self, recipe: Ours | Paper) -> Speeds:
        return self._analytical if recipe.analytic else self._speeds

    def named(self, recipe: Ours | Paper, part: str = "online") -> str:
        """Return a run's name, by all that it depends on; `part` is "imitation" or "online"."""
        return f"{type(recipe).__name__.lower()}-{part}-{_digest(self._key(recipe))}"

    def _run(self, recipe: Ours | Paper, part: str) -> TrainedPolicy:
        """Return a run as it is in its folder so far."""
        name = self.named(recipe, part)
        file = self._runs / name / _CURVE
        curve = {int(update): times for update, times in json.loads(file.read_text()).items()} if file.exists() else {}
        return TrainedPolicy(name, RunFolder(self._runs / name), curve)

    def _key(self, recipe: Ours | Paper) -> dict[str, Any]:
        speeds = [self.digest, _digest_of(self._analytical)] if recipe.analytic else self.digest
        return {"recipe": asdict(recipe), **self.scale.experiment(), "speeds": speeds}

    def _begin(self, run: TrainedPolicy, recipe: Ours | Paper) -> None:
        self.trained_runs += 1
        run.folder.path.mkdir(parents=True, exist_ok=True)
        run.folder.write_settings(self._key(recipe))


def gain(times: Sequence[float], baseline: Sequence[float]) -> float:
    """Return by how many percent the mean is under a baseline's."""
    return float(100 * (1 - np.mean(times) / np.mean(baseline)))


def _silent(what: str, done: int, whole: int, numbers: Mapping[str, float]) -> None:
    """See `learning.bootstrap.Tell`."""


def _digest_of(speeds: Speeds) -> str:
    return _digest([[model, grid.tolist()] for model, grid in sorted(speeds.grids.items())])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def _write(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)
