"""From `dl2 simulate --record` to policies that learnt from the record, by either network."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.learning.recorded import slot_of
from dl2_scheduler.learning.teacher import of_counts
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.history import read_history
from dl2_scheduler.sim.trace import write_trace

CLUSTER = "6x8cpu,8gpu"


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split())
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    write_trace(folder / "trace.jsonl", generate(Pattern.GOOGLE, 16, 1))
    line = f"simulate --policy drf --trace {folder}/trace.jsonl --cluster {CLUSTER} --record {folder}/history.jsonl"
    assert invoke(line)[0] == 0
    return folder / "history.jsonl"


def test_what_was_recorded_is_what_was_decided(history: Path) -> None:
    for now, grants in read_history(history):
        decided = Drf().allocate(now, FreeResources(now)).grants
        assert [decided[state.job.id] for state in now.jobs] == list(grants)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "kind"), [("shared", Weights), ("paper", PaperWeights)])
def test_both_networks_learn_from_it(history: Path, tmp_path: Path, network: str, kind: type) -> None:
    line = (
        f"bootstrap --history {history} --network {network} --clusters {CLUSTER} --jobs 8 --epochs 6 --out {tmp_path}"
    )
    status, output = invoke(line)
    assert status == 0, output
    assert re.search(r"cluster +policy *\n", output), "what the teacher would do elsewhere is not known"
    told = json.loads((tmp_path / "settings.json").read_text())["settings"]
    assert (told["network"], told["history"]) == (network, str(history))
    assert isinstance(load(tmp_path), kind)
    rows = list(csv.DictReader((tmp_path / "imitation.csv").read_text().splitlines()))
    assert float(rows[-1]["imitation/loss"]) < float(rows[0]["imitation/loss"])
    trace = history.parent / "trace.jsonl"
    assert invoke(f"simulate --policy dl2:{tmp_path} --trace {trace} --cluster {CLUSTER}")[0] == 0


ALONE = {"id": 1, "arrival": 0, "model": "dssm", "epochs": 1, "samples_per_epoch": 5} | {
    "worker": {"cpu": 3}, "server": {"cpu": 3}, "max_workers": 2, "max_servers": 2, "epochs_done": 0, "slots_run": 0,
    "workers_before": 0, "servers_before": 0, "workers": 1, "servers": 1,
}  # fmt: skip
"""A job that was given more than its node has."""


@pytest.mark.parametrize("network", ["shared", "paper"])
@pytest.mark.parametrize("jobs", [[], [ALONE]])
def test_a_history_with_next_to_nothing_to_imitate_is_refused(tmp_path: Path, network: str, jobs: list[object]) -> None:
    file, nodes = tmp_path / "history.jsonl", [{"count": 1, "capacity": {"cpu": 4}}]
    lines = [{"slot": slot, "slot_seconds": 60, "nodes": nodes, "jobs": jobs} for slot in range(2)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    line = f"bootstrap --history {file} --network {network} --clusters {CLUSTER} --jobs 2 --out {tmp_path}/run"
    for _ in range(2):  # what it leaves is in nobody's way
        status, output = invoke(line)
        assert status == 2
        assert re.search(r"--history: it has \d slots with jobs", output)


def test_counts_are_reached_by_the_shared_network(history: Path) -> None:
    from dl2_scheduler.learning.networks import SharedPolicy  # torch

    now, grants = max(read_history(history), key=lambda each: len(each[0].jobs))
    models = sorted({state.job.model for state in now.jobs})
    slot = slot_of(
        FreeResources(now), np.array(of_counts(grants, FreeResources(now).least)), SharedPolicy(models).weights()
    )
    workers = sum(grant.workers for grant in grants)
    given = int(np.isin(slot.actions[slot.actions >= 0] % 3, (0, 2)).sum())
    assert given == pytest.approx(workers, abs=1), "but for what another order has no room for"


@pytest.mark.slow
def test_from_a_teacher(tmp_path: Path) -> None:
    line = f"bootstrap --network paper --places 8 --clusters {CLUSTER} --jobs 8 --episodes 2 --warm-up 0 --epochs 2"
    status, output = invoke(f"{line} --out {tmp_path / 'run'}")
    assert status == 0, output
    assert re.search(r"cluster +teacher +policy +difference", output)
    found = load(tmp_path / "run")
    assert isinstance(found, PaperWeights)
    assert found.places == 8


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--history none.jsonl", "none.jsonl: "),
        ("--history none.jsonl --teacher drf", "--teacher and --history: give one of them"),
        ("--teacher nope --network paper", "unknown policy nope"),
    ],
)
def test_what_is_refused_before_there_is_a_folder(tmp_path: Path, options: str, problem: str) -> None:
    status, output = invoke(f"bootstrap --clusters {CLUSTER} --out {tmp_path / 'run'} {options}")
    assert (status, problem in output) == (2, True), output
    assert not (tmp_path / "run").exists()
