"""Our policy in the simulator of Sia's authors, without it: small stand-ins for what it hands to policies."""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import sia
from benchmarks.sia_simulator.choice import (
    ChoiceSettings,
    ConfigurationSet,
    JobOutlook,
    choose,
    pack,
    rank_weights,
    worth,
)
from benchmarks.sia_simulator.length_aware import GPU, LengthAwareChoice, model_of
from benchmarks.sia_simulator.model_history import ModelHistory
from benchmarks.sia_simulator.play import length_aware_policy, set_restart
from benchmarks.sia_simulator.runs import NEEDED_FILES, CannotRun, Run, Simulator
from benchmarks.sia_simulator.shortcuts import error_slope, take_shortcuts

SETTINGS = ChoiceSettings()
EIGHT = ConfigurationSet(np.array([1, 2, 4, 8]), np.zeros(4, int), np.array([8]))
ALL = [("slow", 1, 1), ("slow", 1, 2), ("slow", 1, 4), ("fast", 1, 1), ("fast", 1, 2), ("fast", 1, 4), ("fast", 2, 8)]


def state(remaining, *, speeds=(1.0, 1.9, 3.5, 6.0), restart=0.0, **more):
    return JobOutlook(np.array(speeds), speeds[0], remaining, restart, **more)


class TestChoice:
    def test_weights_are_those_of_hesrpt_and_all_alike_without_preference(self):
        assert rank_weights(np.array([5.0, 100.0, 20.0]), 2.0) == pytest.approx(np.sqrt([5, 1, 3]))
        assert rank_weights(np.array([5.0, 100.0, 20.0]), 1.0) == pytest.approx([1, 1, 1])

    def test_a_job_alone_gets_what_is_fastest_and_a_short_one_more_than_a_long_one(self):
        assert choose([state(5e4)], EIGHT, SETTINGS) == [3]
        short, long = choose([state(500.0), state(5e4)], EIGHT, ChoiceSettings(preference=20.0))
        assert (short, long) == (3, None) or EIGHT.gpus[short] > EIGHT.gpus[long]

    def test_a_restart_has_to_pay(self):
        there = {"current": 1, "speeds": (1.0, 1.9, 2.0, 2.1)}
        assert choose([state(5e4, restart=0.0, **there)], EIGHT, SETTINGS) == [3]
        assert choose([state(5e4, restart=250.0, **there)], EIGHT, SETTINGS) == [1]
        assert choose([state(5e4, restart=250.0, current=0)], EIGHT, SETTINGS) == [3]  # six times as fast

    def test_to_suspend_costs_the_restart_that_follows(self):
        worths, none = worth(state(5e4, restart=50.0, current=2), 2.0, SETTINGS)
        assert none < 0 < worths.min()
        assert worth(state(5e4, restart=50.0), 2.0, SETTINGS)[1] == 0

    def test_a_pinned_job_keeps_what_it_has_and_too_many_of_them_are_refused(self):
        pinned = state(5e4, current=2, pinned=True)
        assert choose([pinned, state(500.0)], EIGHT, SETTINGS) == [2, 2]
        with pytest.raises(RuntimeError, match="no choice of configurations fits the GPUs"):
            choose([pinned] * 3, EIGHT, SETTINGS)

    def test_jobs_that_find_no_room_wait_and_a_speed_of_zero_is_no_choice(self):
        chosen = choose([state(1e3 + number, speeds=(1.0, 1.0, 1.0, 1.0)) for number in range(10)], EIGHT, SETTINGS)
        assert sum(number is not None for number in chosen) == 8
        assert choose([state(1e3, speeds=(1.0, 2.0, 0.0, 0.0))], EIGHT, SETTINGS) == [1]
        assert choose([], EIGHT, SETTINGS) == []

    def test_the_choice_is_the_best_of_all(self):
        random = np.random.default_rng(1)
        jobs = [state(seconds, speeds=tuple(np.sort(random.uniform(1, 8, 4)))) for seconds in (300.0, 2e3, 9e4)]
        weights = rank_weights(np.array([job.remaining / job.single for job in jobs]), SETTINGS.preference)
        worths = [worth(job, weight, SETTINGS)[0] for job, weight in zip(jobs, weights, strict=True)]

        def total(numbers):
            return sum(each[number] for each, number in zip(worths, numbers, strict=True) if number is not None)

        fit = [
            numbers
            for numbers in itertools.product([None, 0, 1, 2, 3], repeat=3)
            if sum(EIGHT.gpus[number] for number in numbers if number is not None) <= 8
        ]
        assert total(choose(jobs, EIGHT, SETTINGS)) == pytest.approx(max(map(total, fit)), rel=2e-3)

    def test_jobs_are_packed_into_as_few_nodes_as_they_fit(self):
        placed = pack({"one": 1, "two": 2, "whole": 8, "half": 2}, nodes=4, per_node=4)
        assert placed["whole"] == [0] * 4 + [1] * 4
        assert all(len(set(placed[name])) == 1 for name in ("one", "two", "half"))
        assert placed["two"][0] == placed["half"][0] != placed["one"][0]


class TestModelHistory:
    def test_what_is_left_is_told_by_jobs_that_ended(self):
        history = ModelHistory()
        assert history.remaining(done=0.0, single=2.0) == 3600  # half an hour on one GPU
        assert history.remaining(done=9000.0, single=2.0) == 9000
        history.totals = [1000.0, 3000.0]
        assert history.remaining(500.0, 2.0) == 1500
        assert history.remaining(1000.0, 2.0) == 2000  # only the longer one counts
        assert history.remaining(5000.0, 2.0) == pytest.approx(0.08 * 2000)

    def test_restarts_are_learnt_and_speeds_are_kept_from_the_job_on_most_gpus(self):
        history = ModelHistory()
        assert history.restart(30.0) == 30
        for seconds in (0.0, 50.0, 50.0):
            history.saw_restart(seconds)
        assert history.restart(30.0) == pytest.approx(130 / 3)
        history.saw_speeds("fast", 4, np.array([4.0]))
        history.saw_speeds("fast", 1, np.array([1.0]))
        assert history.tables["fast"] == [4.0]

    def test_beyond_what_a_job_has_run_its_speeds_go_by_others(self):
        history, fitted = ModelHistory(), np.array([2.0, 4.0, 8.0])
        assert history.beyond("fast", fitted, 0) is fitted
        history.saw_speeds("fast", 4, np.array([1.0, 1.5, 1.8]))
        assert history.beyond("fast", fitted, 0) == pytest.approx([2, 3, 3.6])
        assert history.beyond("fast", fitted, 1) == pytest.approx([2, 4, 4.8])
        assert history.beyond("fast", fitted, 2) == pytest.approx(fitted)


class Speedup:
    """A speedup function as the simulator has them."""

    def __init__(self, single):
        self.single = single

    def get_goodput(self, nodes, gpus):
        assert (nodes <= gpus).all()
        return self.single * gpus**0.9


def job(speedups=None, most=1, **more):
    """Return what the simulator tells policies of a job."""
    values = {
        "speedup_fn": {"slow": None, "fast": None, **(speedups or {})},
        "max_replicas": {"slow": most, "fast": most},
        "used_gpu_seconds": 0.0,
        "wasted_gpu_seconds": 0.0,
        "cluster_throughputs": {"slow": 1.0, "fast": 3.0},
        "cluster_throughput_ratios": {"slow": {"fast": 1 / 3}, "fast": {"slow": 3.0}},
        "scaling_underway": False,
    }
    return SimpleNamespace(**{**values, **more})


NODES = {
    "slow": {0: SimpleNamespace(resources={GPU: 4})},
    "fast": {n: SimpleNamespace(resources={GPU: 4}) for n in (0, 1)},
}


class TestPolicy:
    @pytest.fixture
    def policy(self):
        return LengthAwareChoice(ALL, {"slow": 4, "fast": 8}, lambda _: 30.0, SETTINGS)

    def test_a_new_job_starts_on_one_gpu_of_the_better_type_and_may_grow_no_faster_than_it_is_told(self, policy):
        assert policy.optimize({"net-0": job()}, NODES, {}) == {"net-0": ("fast", [0])}
        grown = job({"fast": Speedup(3.0)}, most=2, used_gpu_seconds=30.0, wasted_gpu_seconds=30.0)
        assert policy.optimize({"net-0": grown}, NODES, {"net-0": ("fast", [0])}) == {"net-0": ("fast", [0, 0])}

    def test_a_job_that_restarts_keeps_its_gpus(self, policy):
        busy = job({"fast": Speedup(3.0)}, most=8, scaling_underway=True)
        before = {"net-0": ("slow", [0, 0])}
        assert policy.optimize({"net-0": busy}, NODES, before) == before

    def test_it_learns_lengths_from_jobs_that_ended_and_nobody_tells_it(self, policy):
        first = job({"fast": Speedup(3.0)}, used_gpu_seconds=0.0)
        policy.optimize({"net-0": first}, NODES, {})
        first.used_gpu_seconds = 100.0
        policy.optimize({"net-0": first}, NODES, {"net-0": ("fast", [0])})
        policy.optimize({"net-1": job()}, NODES, {})  # the first has ended
        assert policy._models["net"].totals == [3.0 * 100 + 30 * 3.0]

    def test_restarts_are_measured(self, policy):
        known = {"fast": Speedup(3.0)}
        for used, wasted in ((0.0, 0.0), (0.0, 120.0), (40.0, 200.0)):
            tuned = job(known, used_gpu_seconds=used, wasted_gpu_seconds=wasted)
            policy.optimize({"net-0": tuned}, NODES, {"net-0": ("fast", [0, 0])} if wasted else {})
        assert policy._models["net"].restart_seconds == 100

    def test_speeds_of_types_that_a_job_has_not_run_on_come_from_others(self, policy):
        for name, used in (("net-0", 0.0), ("net-0", 100.0)):
            policy.optimize(
                {name: job({"slow": Speedup(1.0), "fast": Speedup(3.0)}, 4, used_gpu_seconds=used)}, NODES, {}
            )
        policy._jobs["net-0"].depths = {"slow": 4, "fast": 4}
        policy.optimize({"net-0": job({"slow": Speedup(2.0), "fast": Speedup(3.0)}, 4)}, NODES, {})
        other = job({"fast": Speedup(6.0)}, 4)
        policy.optimize({"net-1": other}, NODES, {})
        speeds = policy._speeds(other, policy._models["net"], policy._jobs["net-1"])
        assert speeds[0] == pytest.approx(4.0)  # 2, and this job is twice as fast; the simulator's ratio says 2

    def test_it_is_a_policy_of_the_simulator_s_class(self):
        class SiaPolicy:
            def __init__(self, speed):
                self.speed = speed

            def populate_valid_configs(self, nodes, per_node, most):
                self.idx_to_config_map = dict(enumerate(ALL))
                self.cluster_total_gpus = {"slow": 4, "fast": 8}

        policy = length_aware_policy(SiaPolicy, lambda _: 1.0, SETTINGS)(speed=7)
        policy.populate_valid_configs({}, {}, {})
        assert isinstance(policy, SiaPolicy)
        assert policy.optimize({"net-0": job()}, NODES, {}) == {"net-0": ("fast", [0])}
        assert policy.speed == 7

    def test_names_have_a_model(self):
        assert model_of("cifar10-12") == "cifar10"


def test_a_restart_of_another_length_is_known_to_the_simulator_and_to_its_policies():
    application, told = SimpleNamespace(rescale_time=250), SimpleNamespace(get_restart_penalty=lambda _: 250)
    set_restart(1.0, {"fast": {"net": application}}, told)
    assert (application.rescale_time, told.get_restart_penalty("net-3")) == (1.0, 1.0)


class TestShortcuts:
    def test_the_slope_is_that_of_the_error(self):
        random = np.random.default_rng(0)
        nodes = np.array([1, 1, 2, 1])
        replicas, batch = np.array([1, 4, 8, 2]), np.array([32, 64, 32, 128])
        compute, step = random.uniform(0.1, 1, (2, 4))
        at = np.array([0.1, 0.01, 0.2, 0.05, 0.1, 0.02, 1.5])

        def error(p):
            computing = p[0] + p[1] * batch
            further = np.maximum(replicas - 2, 1e-8)
            far, near = p[2] + p[3] * further, p[4] + p[5] * further
            network = np.where(nodes > 1, far, np.where(replicas > 1, near, 1e-8 + 1e-8 * further))
            steps = (computing ** p[6] + network ** p[6]) ** (1 / p[6])
            roots = [np.sqrt((np.log(x / y) ** 2).mean()) for x, y in ((computing, compute), (steps, step))]
            return sum(roots) + 1e-3 * (p[6] - 1) ** 2 + 1e-2 * ((p[3] / p[2]) ** 2 + (p[5] / p[4]) ** 2)

        around = [(error(at + 1e-6 * unit) - error(at - 1e-6 * unit)) / 2e-6 for unit in np.eye(7)]
        assert error_slope(at, nodes, replicas, batch, compute, step) == pytest.approx(around, abs=1e-6)

    def test_what_was_computed_is_computed_once(self):
        calls = []

        class GoodputFunction:
            _perf_params, _grad_params, _init_batch_size = (1.0,), (2.0,), 8

            def optimize(self, nodes, replicas, accumulation):
                calls.append("optimize")
                return nodes + replicas

        class Application:
            def get_max_local_bsz(self, placement):
                calls.append("batch")
                return sum(placement)

        goodput = SimpleNamespace(GoodputFunction=GoodputFunction)
        fitting = SimpleNamespace(
            fit_perf_params=lambda *arrays: calls.append("fit") or float(sum(map(np.sum, arrays)))
        )
        take_shortcuts(goodput, fitting, SimpleNamespace(Application=Application))
        assert [fitting.fit_perf_params(np.arange(3), np.ones(3)) for _ in range(2)] == [6.0, 6.0]
        assert [GoodputFunction().optimize(np.arange(2), 1, accumulation=True)[1] for _ in range(2)] == [2, 2]
        application = Application()
        assert [application.get_max_local_bsz((4, 4)) for _ in range(2)] == [8, 8]
        assert calls == ["fit", "optimize", "batch"]
        assert fitting.fit_perf_params(np.arange(3), np.zeros(3)) == 3.0


@pytest.fixture
def artifact(tmp_path):
    """A folder that has the simulator's file names, and an interpreter that lacks nothing."""
    for name in NEEDED_FILES:
        (tmp_path / name).write_text("") if name.endswith(".py") else (tmp_path / name / "philly").mkdir(parents=True)
    (tmp_path / "workloads/philly/workload-1.csv").write_text("name,time,application,num_replicas,batch_size\n")
    return tmp_path


def program(path, text):
    """Return an executable that stands for an interpreter."""
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


RESULT = {
    "completion_seconds": {"net-0": 3600.0, "net-1": 7200.0},
    "restarts": {"net-0": 2, "net-1": 0},
    "makespan": 9000.0,
    "core_seconds": 3.0,
}
PLAYS = f"""
import json, sys
if "--out" in sys.argv:
    open(sys.argv[sys.argv.index("--out") + 1], "w").write({json.dumps(json.dumps(RESULT))})
"""


class TestRuns:
    def test_where_it_is_absent_one_sentence_says_so(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["sia", "--simulator", str(tmp_path / "nowhere")])
        with pytest.raises(SystemExit) as refused:
            sia.main()
        assert refused.value.code == 2
        assert "is not the simulator of Sia's authors: it has no cluster.py" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("print('pandas\\ncvxpy')", r"lacks pandas, cvxpy, .*-m pip install 'pandas<2' 'cvxpy<1.5'"),
            ("raise SystemExit('broken')", "is no Python that runs: broken"),
        ],
    )
    def test_an_interpreter_that_cannot_run_it_is_told_of(self, artifact, text, told):
        simulator = Simulator(artifact, program(artifact / "python", text), artifact / "kept", 60.0)
        with pytest.raises(CannotRun, match=told):
            simulator.check([Run("philly", 1, "sia")])

    def test_a_missing_interpreter_and_a_missing_workload_are_told_of(self, artifact):
        simulator = Simulator(artifact, artifact / "env/bin/python", artifact / "kept", 60.0)
        with pytest.raises(CannotRun, match=r"no interpreter for the simulator: .*Make one by `python3.10 -m venv"):
            simulator.check([Run("philly", 1, "sia")])
        with pytest.raises(CannotRun, match=r"workload-9.csv: ask for fewer --workloads"):
            simulator.check([Run("philly", 9, "sia")])

    def test_a_run_that_takes_too_long_is_killed_and_one_that_fails_says_why(self, artifact, capsys):
        run = Run("philly", 1, "sia", 1.0)
        endless = program(artifact / "python", "import threading; threading.Event().wait()")
        assert Simulator(artifact, endless, artifact / "kept", 0.2).results([run], 1) == {}
        failing = program(artifact / "python", "raise SystemExit('no such thing')")
        assert Simulator(artifact, failing, artifact / "kept", 60.0).results([run], 1) == {}
        told = capsys.readouterr().out
        assert "philly-1-sia-1s: did not end within 0.2 s and was killed" in told
        assert "philly-1-sia-1s: failed: no such thing" in told

    def test_a_call_that_is_ended_takes_its_runs_along(self, artifact, monkeypatch):
        """The first run is the end of the program, once the second one runs."""
        started, popen, play = threading.Event(), subprocess.Popen, Simulator._play
        processes = []

        def start(*arguments, **more):
            processes.append(popen(*arguments, **more))
            started.set()
            return processes[-1]

        def end_or_play(simulator, running, run, path):
            if run.policy == "gavel":
                assert started.wait(60)
                raise SystemExit("ended")
            return play(simulator, running, run, path)

        monkeypatch.setattr(subprocess, "Popen", start)
        monkeypatch.setattr(Simulator, "_play", end_or_play)
        endless = program(artifact / "python", "import threading; threading.Event().wait()")
        runs = [Run("philly", 1, policy) for policy in ("gavel", "sia", "length-aware")]
        with pytest.raises(SystemExit, match="ended"):
            Simulator(artifact, endless, artifact / "kept", 200.0).results(runs, 2)
        assert {process.returncode for process in processes} == {-signal.SIGKILL}  # the third may have started, too

    def test_results_are_kept_and_lead_to_rows_and_goals(self, artifact, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(sia, "FOLDER", tmp_path / "bench")
        monkeypatch.setattr("benchmarks.support.report.FOLDER", tmp_path / "bench")
        command = ["sia", "--simulator", str(artifact), "--traces", "philly", "--workloads", "1", "--python"]
        monkeypatch.setattr(sys, "argv", [*command, str(program(artifact / "python", PLAYS))])
        assert sia.main() == 1  # ours is as good as Sia, which is not enough
        document = json.loads((tmp_path / "bench/sia.json").read_text())
        assert [row["policy"] for row in document["rows"]] == ["sia", "gavel", "length-aware", "sia", "length-aware"]
        assert document["rows"][0]["mean h"] == 1.5
        goals = {goal["name"]: goal for goal in document["goals"]}
        assert len(goals) == 8
        assert goals["Philly, restarts theirs: ours against Sia, mean of 1"]["value"] == 0
        assert goals["Philly: sia beside its published 0.6 h"] == {
            "name": "Philly: sia beside its published 0.6 h",
            "goal": "at most 0.25 of it off",
            "value": 1.5,
            "met": False,
        }
        program(artifact / "python", "import sys; sys.exit('--out' in sys.argv)")  # plays no more
        assert sia.main() == 1
        assert json.loads((tmp_path / "bench/sia.json").read_text())["rows"] == document["rows"]
        capsys.readouterr()

    def test_only_workloads_that_both_have_ended_are_compared(self):
        results = {
            Run("philly", number, policy): {**RESULT, "makespan": 1000.0 * number}
            for number, policy in ((1, "sia"), (1, "length-aware"), (2, "sia"), (3, "length-aware"))
        }
        sias, ours = sia.pairs(results, "philly", None)
        assert [each["makespan"] for each in sias] == [each["makespan"] for each in ours] == [1000.0]
        assert sia.p99_seconds(sias) == 7200

    def test_workloads_that_ours_was_tuned_on_are_left_out(self):
        runs = list(sia.runs_of(["philly", "saturn"], 9, 0))
        assert {run.number for run in runs if run.trace == "philly"} == {1, 2, 3, 4, 5, 6, 9}
        assert {run.number for run in runs if run.trace == "saturn"} == {1, 2, 3, 4, 5, 6, 7, 8}

    @pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
    def test_counts_are_numbers_above_zero(self, text):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of 1 or more"):
            sia._count(text)

    def test_the_checkout_is_as_good_as_its_inner_folder(self, tmp_path):
        (tmp_path / "sia-simulator").mkdir()
        assert sia._inner(tmp_path) == sia._inner(tmp_path / "sia-simulator") == tmp_path / "sia-simulator"

    def test_a_run_has_one_thread_and_nothing_of_our_interpreter(self, artifact, monkeypatch, capsys):
        monkeypatch.setenv("PYTHONPATH", os.fspath(artifact))
        shows = 'import os, sys; sys.exit(f\'{os.environ.get("PYTHONPATH")} {os.environ["OMP_NUM_THREADS"]}\')'
        Simulator(artifact, program(artifact / "python", shows), artifact / "kept", 60.0).results(
            [Run("philly", 1, "sia")], 1
        )
        assert "failed: None 1" in capsys.readouterr().out
