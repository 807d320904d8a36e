"""Policies side by side: the library, and `dl2 evaluate`."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput, Starved
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.fifo import Fifo
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.bound import hard_bound, lp_bound
from dl2_scheduler.sim.evaluate import Contender, Setting, bounds, compare
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import steps
from dl2_scheduler.sim.trace import write_trace
from dl2_scheduler.sim.variation import Variation
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes

SETTING = Setting(nodes({"cpu": 4}, {"cpu": 4}), SPEEDS, slot_seconds=50.0)
SEQUENCES = {
    "a": [job(1, epochs=80.0), job(2, epochs=500.0, arrival=30.0)],
    "b": [job(1, model="bumpy"), job(2, model="flat", epochs=300.0), job(3, arrival=90.0)],
}


def test_every_policy_runs_every_sequence() -> None:
    told: list[str] = []
    drf, fifo = compare([Contender("drf", Drf), Contender("fifo", Fifo)], SEQUENCES, SETTING, told.append)
    assert told == ["drf", "drf", "fifo", "fifo"]
    assert (drf.name, list(drf.runs), list(fifo.runs)) == ("drf", ["a", "b"], ["a", "b"])
    means = [run.jct_slots.mean for run in drf.runs.values()]
    assert drf.numbers["jct_slots.mean"].mean == pytest.approx(sum(means) / 2)
    assert set(drf.differences.values()) == {type(drf.numbers["fairness"])(0.0, 0.0)}
    difference = fifo.numbers["jct_slots.mean"].mean - drf.numbers["jct_slots.mean"].mean
    assert fifo.differences["jct_slots.mean"].mean == pytest.approx(difference)


def test_a_policy_learns_nothing_from_another_sequence() -> None:
    """So the order of sequences is nothing, and the same call gives the same numbers."""
    contenders = [Contender("planner", lambda: make_policy("planner", SPEEDS))]
    (there,), (back,) = (
        compare(contenders, dict(each), SETTING) for each in (SEQUENCES.items(), reversed(SEQUENCES.items()))
    )
    assert there.runs == back.runs


def test_bounds_of_sequences() -> None:
    least = bounds(SEQUENCES, SETTING)
    arguments = SETTING.nodes, SPEEDS, 50.0
    assert least.hard.mean == pytest.approx(sum(hard_bound(jobs, *arguments) for jobs in SEQUENCES.values()) / 2)
    assert least.lp.mean == pytest.approx(sum(lp_bound(jobs, *arguments) for jobs in SEQUENCES.values()) / 2)


def test_every_sequence_has_speeds_of_its_own() -> None:
    """Whatever the policy: its runs and the bounds are of the same jobs."""
    one = {"a": [job(1, epochs=900.0)], "b": [job(1, epochs=900.0)]}
    variation = Variation(0.5, seed=7)
    setting = replace(SETTING, variation=variation)
    (result,) = compare([Contender("drf", Drf)], one, setting)
    a, b = (result.runs[name].jct_slots.mean for name in "ab")
    factors = [variation.of_sequence(number).factors(1)[0] for number in range(2)]
    assert a * factors[0] == pytest.approx(b * factors[1])
    assert a != pytest.approx(b)
    assert result.numbers["fairness"].mean == 1.0
    assert bounds(one, setting).hard.mean <= result.numbers["jct_slots.mean"].mean


def test_what_cannot_run_is_told_before_anything_runs() -> None:
    told: list[str] = []
    wrong = {**SEQUENCES, "c": [job(7, worker={"cpu": 5})]}
    with pytest.raises(BadInput, match=r"^c: job 7: a worker takes"):
        compare([Contender("drf", Drf)], wrong, SETTING, told.append)
    assert told == []


class Nothing:
    """Whose jobs wait for ever."""

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        return room.allocation()


def test_who_starves_where_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "__defaults__", (20,))
    with pytest.raises(Starved, match=r"^a, nothing: 2 jobs are left after 20 slots: the policy starves them"):
        compare([Contender("drf", Drf), Contender("nothing", Nothing)], {"a": SEQUENCES["a"]}, SETTING)


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("val").mkdir()
    for seed in (1, 2):
        write_trace(Path(f"val/{seed}.jsonl"), generate(Pattern.UNIFORM, 3, seed, {"dssm": 1, "wlm": 1}))


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["evaluate", *line.split()])
    return result.exit_code, result.output


@pytest.mark.usefixtures("traces")
def test_a_table() -> None:
    status, output = invoke("--policies drf,planner --traces val/*.jsonl --cluster 4x8cpu,8gpu --bounds")
    assert status == 0
    first, heads, _, drf, planner, lp, hard = output.splitlines()
    assert first == "2 traces, 4 nodes; mean ± half the 95% interval"
    assert " ".join(heads.split()) == "policy JCT, slots vs drf median p95 makespan, slots fairness cpu gpu scalings"
    assert [row.split()[0] for row in (drf, planner)] == ["drf", "planner"]
    assert drf.count("±") == 2
    assert planner.count("±") == 3
    assert (lp.split()[:2], hard.split()[:2]) == (["LP", "bound"], ["hard", "bound"])


@pytest.mark.usefixtures("traces")
def test_json() -> None:
    status, output = invoke("--policies fifo,drf --traces val/2.jsonl --traces val/1.jsonl --slot 600 --json")
    assert status == 0
    document = json.loads(output)
    fifo, drf = document["policies"]
    assert (document["slot_seconds"], document["bounds"]) == (600.0, None)
    assert document["cost"] == asdict(MEASURED)
    assert list(fifo["traces"]) == ["val/1.jsonl", "val/2.jsonl"]
    assert fifo["differences"]["jct_slots.mean"] == {"mean": 0.0, "margin": 0.0}
    by_trace = [drf["traces"][path]["fairness"] for path in fifo["traces"]]
    assert drf["numbers"]["fairness"]["mean"] == pytest.approx(sum(by_trace) / 2)


@pytest.mark.usefixtures("traces")
def test_costs_and_placements_matter() -> None:
    plain = invoke("--policies drf --traces val/1.jsonl")
    assert plain[0] == 0
    measured = f"--placement spread --start-cost {MEASURED.start} --change-cost {MEASURED.change}"
    assert plain == invoke(f"--policies drf --traces val/1.jsonl {measured} --speed-variation 0")
    assert plain != invoke("--policies drf --traces val/1.jsonl --start-cost 300")
    varied = [invoke(f"--policies drf --traces val/1.jsonl --speed-variation 0.3 --variation-seed {n}") for n in "112"]
    assert varied[0] == varied[1]
    assert len({plain, *varied}) == 3


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--policies drf --traces none/*.jsonl", "--traces none/*.jsonl: no such file: give the path of a trace"),
        ("--policies dfr --traces val/1.jsonl", "unknown policy dfr: give one of drf, fifo"),
        ("--policies drf,drf --traces val/1.jsonl", "--policies: drf again: give each policy once"),
        ("--policies drf --traces val/1.jsonl --slot -1", "--slot is -1.0: give seconds above 0"),
        ("--policies drf --traces val/1.jsonl --change-cost -1", "--change-cost -1.0: give seconds from 0 on"),
        ("--policies drf --traces val/1.jsonl --speed-variation 1", "speed variation 1.0: give a part, from 0 to less"),
        ("--policies drf --traces val/1.jsonl --placement best", "unknown placement best: give one of spread, pack"),
        ("--policies drf --traces val/1.jsonl --cluster 4x1cpu", "val/1.jsonl:1: job 1: a worker takes"),
    ],
)
def test_bad_input_is_one_line(line: str, reason: str) -> None:
    status, output = invoke(line)
    assert status == 2
    assert output.startswith("dl2: ")
    assert reason in output
    assert output.count("\n") == 1


@pytest.mark.usefixtures("traces")
def test_an_option_that_is_no_number_is_refused_by_name() -> None:
    status, output = invoke("--policies drf --traces val/1.jsonl --slot nan")
    assert status == 2
    assert "Invalid value for '--slot': nan: give a number" in output
