"""This module kills workers of PyTorch's jobs, one after the other, and proves what came of it."""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.scripts import train_replicas
from benchmarks.support.report import BenchmarkGoal, at_least, at_most
from coordinator.client import ClientError
from coordinator.ctl.exactly_once_audit import audit
from dl2_scheduler.backends.trial import Trial
from dl2_scheduler.cluster.errors import TrialFailed
from elastic_ps.core.data_order import indices, permutation
from protos import elastic_pb2 as pb

WORKERS = 3
_SEED = 7
_EPOCHS = 400
_PACE_SECONDS = 0.02
_LAST = 0.8  # of a job's steps: then nobody is killed any more
_HURRY = "hurry"
_PATIENCE = 300.0
_OPTIONS = ("--seed", str(_SEED), "--max-restarts", "100000", "--join-timeout", "300")
_KILLS_OF_A_JOB = 12


@dataclass(frozen=True)
class KilledWorkers:
    """This is what came of one job.

    Attributes:
        kills: how often a worker was killed.
        during_plans: so many of them while a plan was under way.
        survivors: members that outlived a kill, all kills together.
        redone: steps that some worker computed again, all together.
        most: so often a worker computed one step, at most: more than twice where two deaths met in one step.
        problems: of the ledger's audit; and of the weights, where they are not those of one process to 1e-9.
    """

    kills: int
    during_plans: int
    survivors: int
    redone: int
    most: int
    problems: tuple[str, ...]


def killed_workers(
    folder: Path, kills: int, servers: int, options: Sequence[str] = ()
) -> tuple[dict[str, Any], list[BenchmarkGoal]]:
    """Run jobs until so many of their workers have been killed, every third while a plan was under way.

    Args:
        folder: of the jobs; its name is the seed of moments and victims.
        kills: in all.
        servers: of a job.
        options: of `elasticrun`.

    Returns:
        The row of all jobs, and the goals.

    Raises:
        TrialFailed: a job did not come through.
    """
    outcomes: list[KilledWorkers] = []
    while (left := kills - sum(outcome.kills for outcome in outcomes)) > 0:
        print(f"kills: {kills - left} of {kills}", file=sys.stderr, flush=True)
        chance = random.Random(f"{folder.name}-{len(outcomes)}")
        own = folder / f"kills-{len(outcomes)}"
        outcomes.append(_one_job(own, min(left, _KILLS_OF_A_JOB), chance, servers, (*options, *_OPTIONS)))
        if not outcomes[-1].kills:
            raise TrialFailed("a job has ended before anybody could be killed")
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        print(problem, file=sys.stderr)
    made, survivors = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("kills", "survivors"))
    redone = sum(outcome.redone for outcome in outcomes)
    row = {
        "part": "kills",
        "jobs": len(outcomes),
        "kills": made,
        "during plans": sum(outcome.during_plans for outcome in outcomes),
        "survivors": survivors,
        "steps computed again, by all workers": redone,
        "a step again, at most": max(outcome.most for outcome in outcomes) - 1,
        "problems": len(problems),
        "load": os.getloadavg()[0],
    }
    return row, [
        at_least("kills: made", kills, made, "kills"),
        at_most("kills: computed again by a survivor", 1, redone / survivors, "steps"),
        at_most("kills: samples or weights that are not an undisturbed job's", 0, len(problems), "problems"),
    ]


def _one_job(folder: Path, kills: int, chance: random.Random, servers: int, options: tuple[str, ...]) -> KilledWorkers:
    """Run a job, and kill workers until so many are dead or the job nears its end.

    Args:
        folder: of the job.
        kills: at most.
        chance: of moments and victims.
        servers: of the job.
        options: of `elasticrun`.

    Raises:
        TrialFailed: the job did not come through.
    """
    results = (folder / "results").resolve()
    results.mkdir(parents=True, exist_ok=True)
    script = [train_replicas.__name__, str(results), "--epochs", str(_EPOCHS), "--pace", str(_PACE_SECONDS)]
    kills_made: list[Kill] = []
    with Trial(folder, "killed", script, WORKERS, servers, options) as job:
        while len(kills_made) < kills:
            rests = len(kills_made) % 3 != 2
            if not _wait(job, rests):
                break
            time.sleep(chance.random() * 0.5)
            kills_made += _kill(job, chance)
        (results / _HURRY).touch()
        if job.process.wait(_PATIENCE) != 0:
            raise TrialFailed(f"the job failed: see the logs in {job.folder}")
        archive = job.stop()
    assert archive is not None, "the job has run"
    computed = [Counter(file.read_text().split()) for file in results.glob("*.steps")]
    proof = audit(archive.ledger, train_replicas.SAMPLES, train_replicas.BATCH, _EPOCHS)
    return KilledWorkers(
        len(kills_made),
        sum(kill.during_plan for kill in kills_made),
        sum(kill.survivors for kill in kills_made),
        sum(sum(counts.values()) - len(counts) for counts in computed),
        max(max(counts.values(), default=0) for counts in computed),
        (*proof.problems, *_wrong_weights(results)),
    )


def _wait(job: Trial, rests: bool) -> bool:
    """Wait until a worker may be killed; False: the job nears its end.

    Args:
        job: that trains.
        rests: wait until all workers train and no plan is under way; else until two members train.
    """
    last = _LAST * _EPOCHS * train_replicas.EPOCH_STEPS
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        status = _status(job)
        if status is not None and status.version >= last:
            return False
        if status is not None and status.phase == "running" and status.version:
            members = len(_members(status))
            if members == WORKERS and not status.plan.id if rests else members >= 2:
                return True
        if job.process.poll() is not None:
            break
        time.sleep(0.02)
    raise TrialFailed(f"the job does not train with {WORKERS} workers again: see the logs in {job.folder}")


@dataclass(frozen=True)
class Kill:
    """This is how a job was when one of its workers was killed.

    Attributes:
        during_plan: a plan was under way.
        survivors: members besides the victim.
    """

    during_plan: bool
    survivors: int


def _kill(job: Trial, chance: random.Random) -> list[Kill]:
    """Kill a member, where there are two or more, and return how the job was then."""
    status = _status(job)
    members = [] if status is None else _members(status)
    if status is None or len(members) < 2:
        return []
    kill = Kill(bool(status.plan.id), len(members) - 1)
    os.kill(chance.choice(sorted(node.pid for node in members)), signal.SIGKILL)
    victim_gone = time.monotonic() + 5.0
    version, before = status.version, status.configuration
    while time.monotonic() < victim_gone:  # until the death's plan is in force: the next one is another death
        status = _status(job)
        if status is not None and status.configuration != before and status.version > version:
            break
        time.sleep(0.02)
    return [kill]


def _members(status: pb.StatusReply) -> list[pb.NodeStatus]:
    return [node for node in status.nodes if node.member.role == pb.WORKER and node.state == "member" and node.pid]


def _status(job: Trial) -> Any:
    try:
        return job.client.status()
    except (OSError, ValueError, KeyError, ClientError, TrialFailed):
        return None


def _wrong_weights(results: Path) -> list[str]:
    """Return in which weights the job differs from one process of plain PyTorch."""
    found = torch.load(results / train_replicas.WEIGHTS)
    return [
        f"{name} differs by {(found[name] - values).abs().max():.2g} from one process's"
        for name, values in _trained_alone().items()
        if not torch.allclose(found[name], values, rtol=1e-9, atol=1e-12)
    ]


def _trained_alone() -> dict[str, torch.Tensor]:
    """Return the weights after the same training in one process."""
    model = train_replicas.network()
    optimizer = train_replicas.adam(model)
    inputs, targets = train_replicas.data()
    for epoch in range(_EPOCHS):
        order = permutation(_SEED, epoch, train_replicas.SAMPLES)
        for low in range(0, train_replicas.SAMPLES, train_replicas.BATCH):
            chosen = torch.from_numpy(indices(order, range(low, low + train_replicas.BATCH)))
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
    return model.state_dict()
