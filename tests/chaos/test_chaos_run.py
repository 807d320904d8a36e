"""A run takes every fault to an outcome, also of jobs that fail, and of a harness that breaks."""

import sys

import pytest

from tests.chaos import run as running
from tests.chaos.draw import draw
from tests.chaos.run import Run

ROOM = """
import json, sys
from dataclasses import asdict, replace
from pathlib import Path
from tests.chaos.draw import JobDraw
from tests.chaos.result import blank
draw, folder = JobDraw.from_json(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2])
with (folder / "results.jsonl").open("a") as results:
    for fault in draw.faults:
        outcome = OUTCOMES.get(fault.number, "recovered")
        if outcome == "crash":
            sys.exit("the harness has a bug")
        print(json.dumps(asdict(replace(blank(draw, fault), outcome=outcome))), file=results)
        if outcome == "hung":
            sys.exit(1)
"""


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Runs 12 faults in rooms that say what is wanted of each; returns the run."""

    def run(outcomes):
        code = f"OUTCOMES = {outcomes}\n{ROOM}"
        monkeypatch.setattr(running, "inside", lambda command, _room: [sys.executable, "-c", code, *command[-2:]])
        made = Run(draw(1, 12, True), tmp_path, lanes=2, room=False)
        made.run()
        return made

    return run


@pytest.mark.slow
def test_jobs_that_came_through_leave_no_folder(played, tmp_path):
    run = played({})
    assert sorted(run.results) == list(range(12))
    assert {result.outcome for result in run.results.values()} == {"recovered"}
    assert all(run.jobs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_faults_behind_one_that_hangs_go_to_another_job(played, tmp_path):
    run = played({3: "hung"})
    assert {number for number, result in run.results.items() if result.outcome == "hung"} == {3}
    assert sorted(run.results) == list(range(12))
    assert run.jobs.count(False) == 1
    assert len(list(tmp_path.iterdir())) == 1, "the folder of the job that failed"


@pytest.mark.slow
@pytest.mark.parametrize("broken", [0, 3])
def test_a_harness_that_breaks_is_a_failure_of_its_own(played, broken):
    run = played({broken: "crash"})
    assert sorted(run.results) == list(range(12))
    result = run.results[broken]
    assert (result.outcome, result.why) == ("harness", "the harness has a bug")
