"""Runs of the simulator are processes of another interpreter: what is missing is told, and none outlives the call."""

import os
import signal
import subprocess
import threading

import pytest

from benchmarks.sia_simulator import runs as benchmark_runs
from benchmarks.sia_simulator.runs import DECIDING, PLAYING, CannotRun, Run, Simulator
from tests.benchmarks.sia_simulator.stand_ins import program


class TestRuns:
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

    def test_a_run_has_one_thread_and_nothing_of_our_interpreter(self, artifact, monkeypatch, capsys):
        monkeypatch.setenv("PYTHONPATH", os.fspath(artifact))
        shows = 'import os, sys; sys.exit(f\'{os.environ.get("PYTHONPATH")} {os.environ["OMP_NUM_THREADS"]}\')'
        Simulator(artifact, program(artifact / "python", shows), artifact / "kept", 60.0).results(
            [Run("philly", 1, "sia")], 1
        )
        assert "failed: None 1" in capsys.readouterr().out

    def test_a_result_is_kept_for_this_code_and_for_theirs(self, artifact, monkeypatch):
        simulator = Simulator(artifact, artifact / "python", artifact / "kept", 60.0)
        runs = [Run("philly", 1, policy) for policy in ("sia", "length-aware")]
        keys = [[simulator._key(run) for run in runs]]
        assert keys[0] == [simulator._key(run) for run in runs]
        (artifact / "goodput.py").write_text("changed = True\n")
        keys.append([simulator._key(run) for run in runs])
        code = artifact / "code"
        code.mkdir()
        for name in (*PLAYING, *DECIDING):
            (code / name).write_text("")
        monkeypatch.setattr(benchmark_runs, "__file__", str(code / "runs.py"))
        for name in ("play.py", "shortcuts.py", "choice.py"):
            keys.append([simulator._key(run) for run in runs])
            (code / name).write_text("changed = True\n")
        keys.append([simulator._key(run) for run in runs])
        of_sia, of_lengths = zip(*keys, strict=True)
        assert len(set(of_lengths)) == len(keys)
        assert len(set(of_sia)) == len(keys) - 1, "choice.py does not matter to it"
