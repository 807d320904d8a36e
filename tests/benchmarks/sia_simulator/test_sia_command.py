"""The command makes rows and goals of what came of the runs."""

import argparse
import json
import sys

import pytest

from benchmarks import sia
from benchmarks.sia_simulator.runs import Run
from tests.benchmarks.sia_simulator.stand_ins import PLAYS, RESULT, program


class TestCommand:
    def test_where_it_is_absent_one_sentence_says_so(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["sia", "--simulator", str(tmp_path / "nowhere")])
        with pytest.raises(SystemExit) as refused:
            sia.main()
        assert refused.value.code == 2
        assert "is not the simulator of Sia's authors: it has no cluster.py" in capsys.readouterr().err

    def test_results_are_kept_and_lead_to_rows_and_goals(self, artifact, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(sia, "FOLDER", tmp_path / "bench")
        monkeypatch.setattr("benchmarks.support.report.FOLDER", tmp_path / "bench")
        command = ["sia", "--simulator", str(artifact), "--traces", "philly", "--workloads", "1", "--python"]
        monkeypatch.setattr(sys, "argv", [*command, str(program(artifact / "python", PLAYS))])
        assert sia.main() == 1  # ours is as good as Sia, which is not enough
        document = json.loads((tmp_path / "bench/sia.json").read_text())
        policies = [row["policy"] for row in document["rows"]]
        assert policies == ["sia", "gavel", "length-aware-sia", "length-aware", "sia", "length-aware"]
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
