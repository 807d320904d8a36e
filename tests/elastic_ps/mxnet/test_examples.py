"""The examples, in this process, with a job of one worker. Their runs as real jobs are elsewhere."""

import json
import runpy
import sys

import numpy as np
import pytest

import elastic_ps
import elastic_ps.mxnet.data as data_module
import elastic_ps.mxnet.kvstore as kvstore_module
from elastic_ps.core.data_order import indices, permutation, share
from elastic_ps.data.sampler import Sampler
from tests.elastic_ps.mxnet.fake_store import FakeStore
from tests.paths import ROOT

pytestmark = pytest.mark.mxnet

EXAMPLES = ROOT / "examples"


class LoneSampler(Sampler):
    """All slices of each epoch, for one worker."""

    def __iter__(self):
        epoch = self.epoch = getattr(self, "epoch", -1) + 1
        order = permutation(0, epoch, self.spec.samples)
        slices = [indices(order, share(self.spec, step, 0, 1)) for step in range(self.spec.steps_per_epoch)]
        for step, chosen in enumerate(slices):
            yield epoch * len(slices) + step, chosen, self._load(chosen)
            self._lookahead(slices[step + 1 : step + 5])


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run an example; returns what it writes to --out and the metrics that it reports."""
    metrics: dict[int, dict[str, float]] = {}
    monkeypatch.setattr(data_module, "Sampler", LoneSampler)
    monkeypatch.setattr(kvstore_module, "open_store", lambda _consistency: FakeStore())
    monkeypatch.setattr(elastic_ps, "epochs", range, raising=False)
    monkeypatch.setattr(elastic_ps, "is_chief", lambda: True, raising=False)
    monkeypatch.setattr(
        elastic_ps, "report", lambda step, **values: metrics.setdefault(step, {}).update(values), raising=False
    )
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def run_example(name: str, *arguments: str):
        out = tmp_path / "out.json"
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--out", str(out)])
        np.random.seed(0)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return json.loads(out.read_text()), metrics

    return run_example


def test_digits(run):
    result, metrics = run("digits.py", "--epochs", "10")
    assert result["test_accuracy"] >= 0.97
    assert sorted(metrics) == list(range(230))  # ceil(1437 / 64) steps in each of 10 epochs
    assert metrics[229]["accuracy"] == result["test_accuracy"]
    assert metrics[229]["loss"] < metrics[0]["loss"] / 10


def test_digits_static(run):
    result, _ = run("digits_static.py", "--epochs", "5")
    assert result["test_accuracy"] >= 0.9


def test_mlp(run):
    result, metrics = run("mlp.py", "--epochs", "3")
    assert result["test_accuracy"] >= 0.93
    assert sorted(metrics) == list(range(270))  # ceil(1437 / 16) steps in each of 3 epochs
    assert metrics[269]["accuracy"] == result["test_accuracy"]


def test_lstm(run):
    result, metrics = run("lstm.py", "--epochs", "1")
    assert 0 < result["bits_per_character"] < 5
    assert metrics[max(metrics)]["bits_per_character"] == result["bits_per_character"]


def test_at_most_six_lines_make_a_script_elastic():
    lines = (EXAMPLES / "digits.py").read_text().splitlines()
    assert sum("# elastic" in line for line in lines[8:]) == 6
