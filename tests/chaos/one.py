"""One disturbed job, from its start to its proof: `python -m tests.chaos.one DRAW.json FOLDER`.

It runs inside the job's room. It writes FOLDER/results.jsonl, a line for each fault, and of a job that failed
FOLDER/story.txt.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from coordinator.client import ClientError
from tests.chaos import disturbed
from tests.chaos.disturbed import DisturbedJob, Ended, Hung
from tests.chaos.draw import Fault, JobDraw
from tests.chaos.inject import Injection
from tests.chaos.phases import Missed, reached
from tests.chaos.result import Result, blank
from tests.chaos.watch import Watch
from tests.e2e.proofs import assert_undisturbed, finish
from tests.world.faults.cells import DEATH, FILLING, LOSE, REST, RESTORE

_TRIES = 4
_TAIL_LINES = 120  # with the stacks of a process's threads


def disturb(job: DisturbedJob, fault: Fault, result: Result) -> Result:
    """Make one fault of a job at rest and see it come back. Raises Hung, Ended."""
    restores = job.restores()
    for _ in range(_TRIES):
        injection = Injection(job, fault)
        try:
            with reached(job, fault.cell.phase, random.Random(fault.seed), injection.choose) as (targets, plan):
                watch = Watch(job, injection, plan)
        except (Missed, ProcessLookupError) as error:
            result = replace(result, outcome="missed", why=str(error))
            _rest(job)
            continue
        result = replace(result, outcome="recovered", why="", met=" ".join(target.name for target in targets))
        try:
            times = watch.back()
        except (Hung, Ended) as error:
            return replace(result, outcome="hung" if isinstance(error, Hung) else "ended", why=str(error))
        if not injection.has_fired:
            result = replace(result, outcome="missed", why="it met no packet, no connection, nothing that was written")
            _rest(job)
            continue
        ended = next((found.phase for found in _plans(job) if found.id == plan), "") if plan else ""
        result = judged(replace(result, plan=ended.lower(), **times), job, fault, injection, restores)
        _rest(job)
        return result
    return result


def judged(result: Result, job: DisturbedJob, fault: Fault, injection: Injection, restores: Container[int]) -> Result:
    """Add whether the job was protected, and what it cost all the same."""
    why = "; ".join(cause for plan, cause in job.restores().items() if plan not in restores)
    alone = fault.cell.phase not in (DEATH, FILLING, RESTORE)
    result = replace(result, restored=why, protected=alone and injection.protected)
    if why and result.protected and not _may_restore(fault, result.mode):
        return replace(result, outcome="restored", why=f"each block had a follower: {why}")
    return result


def _may_restore(fault: Fault, mode: str) -> bool:
    """Whether one fault costs a protected job a restore by design: nodes do not know who was told which batch."""
    return fault.cell.kind == LOSE and (mode != "sync" or fault.cell.phase != REST)


def _plans(job: DisturbedJob) -> list:
    with suppress(ClientError):
        return job.job.client.plans()
    return []


def _rest(job: DisturbedJob) -> None:
    """Back to the numbers that each fault begins with."""
    job.settle(job.bound)
    job.scale(job.base)
    job.settle(job.bound)


def prove(job: DisturbedJob, draw: JobDraw) -> str:
    """End the job; returns why its proof or its weights fail, or ""."""
    try:
        weights = finish(job.job, job.folder, timeout=job.bound, lost=LOSE in draw.kinds)
        if draw.mode == "sync":
            assert_undisturbed(weights)
        elif draw.serverless:
            _assert_trained_by_one(weights)
    except AssertionError as error:
        return f"{error}"
    return ""


def _assert_trained_by_one(weights: dict) -> None:
    from tests.e2e.torch_proofs import assert_trained_by_one  # here, as it imports PyTorch

    assert_trained_by_one(weights)


def run(draw: JobDraw, folder: Path, tell: Callable[[Result], None]) -> bool:
    """Disturb one job by its faults in turn; returns whether it came through all of them and proved itself."""
    done: list[Result] = []
    with disturbed.start(folder, draw) as job:
        for fault in draw.faults:
            result = blank(draw, fault)
            try:
                result = disturb(job, fault, result)
            except (
                Hung,
                Ended,
            ) as error:  # before the fault, or after it had been mended: the job does not come to rest
                result = replace(result, outcome="hung", why=f"not at rest: {error}")
            done.append(result)
            tell(result)
            if result.outcome in ("hung", "ended"):
                (folder / "story.txt").write_text(story(job, draw, done))
                return False
        why = prove(job, draw)
        if why:
            tell(replace(done[-1], outcome="unproved", why=why))
            (folder / "story.txt").write_text(story(job, draw, done) + why)
    return not why


def story(job: DisturbedJob, draw: JobDraw, done: list[Result]) -> str:
    """What a failing job's nodes last said, its status, and where each of their threads stands. The job is ended."""
    parts = [f"job {draw.number}: {draw}"]
    parts += [json.dumps(asdict(result)) for result in done]
    ctl = [sys.executable, "-c", "from coordinator.ctl.cli import main; main()", "status", "job"]
    state = {**os.environ, "XDG_STATE_HOME": str(job.folder / "state")}
    try:
        told = subprocess.run(ctl, capture_output=True, text=True, check=False, timeout=20, env=state)
        parts.append(f"elasticctl status:\n{told.stdout}{told.stderr}")
    except subprocess.TimeoutExpired:
        parts.append("elasticctl status: no answer within 20 s")
    parts.append("\n".join(f"{plan.id} {plan.phase} {plan.cause} {plan.reason}" for plan in _plans(job)))
    job.abort()
    logs = sorted((job.job.folder / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in [*logs, job.job.log]:
        tail = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        parts.append(f"--- {path.name}\n" + "\n".join(tail))
    return "\n\n".join(parts) + "\n"


def main() -> int:
    draw, folder = JobDraw.from_json(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2])
    with (folder / "results.jsonl").open("a", buffering=1) as results:
        try:
            whole = run(draw, folder, lambda result: print(json.dumps(asdict(result)), file=results))
        except (Hung, Ended, AssertionError) as error:
            print(json.dumps({"job": draw.number, "unstarted": str(error)}), file=results)
            return 1
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
