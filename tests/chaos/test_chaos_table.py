"""What a run came to, for people and for programs."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from tests.chaos.draw import draw
from tests.chaos.result import blank
from tests.chaos.table import failures, summary, table
from tests.chaos.together import lines, results_of


@pytest.fixture
def results():
    """Three faults of one cell, of which one failed, and one of another."""
    some = [blank(job, fault) for job in draw(1, 8, False) for fault in job.faults][:4]
    cells = [("worker", "ARMED", "kill")] * 3 + [("server", "rest", "stop")]
    made = [
        replace(each, role=role, phase=phase, kind=kind) for each, (role, phase, kind) in zip(some, cells, strict=True)
    ]
    times = [
        {"trained": 1.0, "whole": 2.0, "stood": 0.5, "protected": True},
        {"trained": 3.0, "whole": 4.0, "stood": 0.5},
        {"outcome": "hung"},
        {"trained": 0.0},
    ]
    return [replace(each, **more) for each, more in zip(made, times, strict=True)]


def test_a_field_says_how_many_came_back_and_how_soon(results):
    console = Console(width=160, record=True)
    console.print(table(results))
    text = console.export_text()
    assert "2/3: 2.0 3.0" in text
    assert "1: 0.0 0.0" in text


def test_each_failure_is_told_once_more_with_its_reason(results):
    results[2] = replace(results[2], why="not whole\n78 s after the fault")
    assert list(failures(results)) == [
        f"FAILED  hung: {results[2].fault} (), job {results[2].job}: not whole 78 s after the fault"
    ]


def test_a_summary_counts_by_outcome_and_kind(results):
    told = summary(results, [])
    assert told["outcomes"] == {"recovered": 3, "hung": 1}
    assert told["kinds"]["worker kill"]["faults"] == 3
    assert told["kinds"]["worker kill"]["trained"] == {"median": 2.0, "max": 3.0}
    assert [row["number"] for row in told["rows"]] == sorted(result.number for result in results)


def test_runs_are_summed_up_together(results):
    run = json.loads(json.dumps(summary(results, [])))
    told = list(lines(results_of([run, run])))
    assert "| worker | kill | 6 | 4 | 0.5 | 0.5 | 3.0 | 4.0 |" in told
    assert "single faults of protected jobs: 2, of which 0 cost a restore; stood {'median': 0.5, 'max': 0.5}" in told
