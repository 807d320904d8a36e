"""What several runs have printed is summed."""

from io import StringIO

import pytest
from rich.console import Console

from tests.world.faults import coverage
from tests.world.faults.cells import possible
from tests.world.together import Sum

HITS = possible() * 60 + [("server-server", "death", "reset")] * 20 + [("", "rest", "save")]
AGAIN = "at c7f9382b: python -m tests.world --seed 7 --shrink"


def printed(hits, faults, serverless=()):
    console = Console(width=140, record=True, file=StringIO())
    console.print(coverage.table(hits))
    console.print(coverage.table(serverless, serverless=True))
    told = "2 faults came alone while every block had a follower, and cost no restore where nothing failed"
    return [
        *console.export_text().splitlines(),
        told,
        f"100 jobs, 9 steps, {faults} faults, 1 failed; 50 jobs a CPU minute",
        AGAIN,
    ]


def test_runs_are_summed_up_together():
    together = Sum()
    together.add(printed(HITS, len(HITS)))
    together.add(printed(HITS[:-1], len(HITS) - 1))
    assert together.hits["server-server", "death", "reset"] == 160
    assert together.hits["", "rest", "save"] == 121
    assert (together.jobs, together.faults, together.failed, together.alone) == (200, 2 * len(HITS) - 1, 2, 4)
    assert together.minutes == 4.0
    assert together.again == [AGAIN, AGAIN]


def test_jobs_without_servers_are_summed_up_apart():
    together, kill = Sum(), ("worker", "ARMED", "kill")
    together.add(printed([kill], 3, [kill, ("worker-worker", "death", "drop")]))
    assert together.hits == {kill: 1}
    assert together.serverless == {kill: 1, ("worker-worker", "death", "drop"): 1}


def test_faults_in_no_cell_of_the_table_are_told_and_summed_up():
    """A job without servers that restores has few."""
    together, restoring = Sum(), ("worker", "restore", "freeze")
    lines = printed([], 2, [restoring, ("worker", "ARMED", "kill")])
    together.add(lines)
    assert "1 besides, in no cell: freeze of worker at restore" in [line.strip() for line in lines]
    assert (together.faults, together.serverless) == (2, {("worker", "ARMED", "kill"): 1})


def test_a_run_that_has_not_ended_counts_for_nothing():
    together = Sum()
    together.add(printed(HITS, len(HITS))[:-2])
    assert together == Sum()


def test_a_table_that_was_not_read_whole_is_refused():
    with pytest.raises(ValueError, match="its table has"):
        Sum().add(printed(HITS, len(HITS) + 1))


def test_rare_cells_are_named_where_they_are_few():
    few = [cell for cell in HITS if cell != ("server-server", "death", "reset")] + [
        ("server-server", "death", "reset")
    ] * 3
    assert any(line.strip() == "hit 3 times: reset of server-server at death" for line in printed(few, len(few)))
