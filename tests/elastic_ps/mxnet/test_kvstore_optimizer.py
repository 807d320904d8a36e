"""MXNet's KVStore contract: the optimizer on the servers, and its states in files."""

import os
import pickle
from pathlib import Path
from unittest.mock import patch

import mxnet as mx
import numpy as np
import pytest

import elastic_ps.mxnet.kvstore as kvstore_module
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet import ElasticKVStore
from elastic_ps.worker.script.optimizer_states import States
from tests.elastic_ps.mxnet.fake_store import FakeStore
from tests.elastic_ps.mxnet.mx_arrays import ones, values, zeros
from tests.elastic_ps.worker.instant_job import instant_job, sgd

pytestmark = pytest.mark.mxnet


def test_servers_update_with_the_values_of_the_scripts_optimizer(kv, fake):
    optimizer = mx.optimizer.SGD(learning_rate=0.5, rescale_grad=0.25)
    kv.set_optimizer(optimizer)
    kv.init(3, zeros(2))
    out = zeros(2)
    kv.pushpull(3, ones(2), out=out)
    assert values(out) == [-0.125] * 2
    optimizer.set_learning_rate(1)
    kv.pushpull(3, ones(2), out=out)
    assert values(out) == [-0.375] * 2
    assert [hyper.lr for hyper in fake.hypers] == [0.5, 1]
    assert "set_local_update" not in fake.calls


def test_a_difference_from_the_jobs_optimizer_is_a_warning(kv, fake):
    fake.warnings = ["momentum is 0.9 in the job, not 0"]
    with pytest.warns(UserWarning, match=r"momentum is 0\.9 in the job") as said:
        kv.set_optimizer(mx.optimizer.SGD())
    assert len(said) == 1


def test_another_rule_than_the_jobs_is_one_warning_and_the_first_stays(tmp_path, caplog):
    path = str(tmp_path / "states")
    held = {"s:a": {"count": 2, "momentum": np.full(1, 7, "float32")}}
    with instant_job(sgd) as (job, _), patch.object(States, "collect", lambda _states: held):
        kv = ElasticKVStore(job.open_store())
        kv.set_optimizer(mx.optimizer.Adam())
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))  # no key is defined yet
        kv.init("a", zeros(1))
        with pytest.warns(UserWarning, match="optimizer adam is ignored, the job has sgd") as said:
            kv.set_optimizer(mx.optimizer.Adam(learning_rate=8))
        out = zeros(1)
        kv.pushpull("a", ones(1), out=out)
        kv.save_optimizer_states(path)
    assert len(said) == 1
    assert caplog.records == []
    assert values(out) == [-0.5]
    assert values(pickle.loads(Path(path).read_bytes())["a"]) == [7]


def test_states_of_another_workers_rule_are_refused(kv, fake, monkeypatch):
    kv.set_optimizer(mx.optimizer.Adam())
    monkeypatch.setattr(fake, "optimizer_states", lambda: {"s:a": {"count": 2, "momentum": np.zeros(1, "float32")}})
    with pytest.raises(ConfigurationError, match="key a: the servers keep momentum, but Adam keeps mean, variance: a"):
        kv.save_optimizer_states("nowhere")


def test_without_an_optimizer_workers_update_and_the_store_says_so_once(kv, fake):
    kv.init(1, ones(1))
    kv.push(1, ones(1))
    kv.pushpull(1, ones(1))
    assert fake.calls.count("set_local_update") == 1
    assert fake.calls.index("set_local_update") < fake.calls.index("push")


def test_states_travel_by_file(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    kv.init(["a", "b"], [ones(2), ones((2, 2))])
    kv.push(["a", "b"], [ones(2), ones((2, 2))])
    path = tmp_path / "states"
    kv.save_optimizer_states(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["states"]

    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    reader.init(["a", "b"], [ones(2), ones((2, 2))])
    reader.load_optimizer_states(str(path))
    for key in ("s:a", "s:b"):
        np.testing.assert_array_equal(other.held[key].states["momentum"], fake.held[key].states["momentum"])


def test_a_saved_optimizer_comes_back_with_its_states(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.3))
    kv.init(0, ones(2))
    for _ in range(3):
        kv.push(0, ones(2))
    path = str(tmp_path / "states")
    kv.save_optimizer_states(path, dump_optimizer=True)

    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
    reader.init(0, ones(2))
    reader.load_optimizer_states(path)
    assert other.held["i:0"].count == 3
    reader.push(0, ones(2))
    assert other.hypers[-1].lr == 0.3


def test_states_that_the_servers_refuse_leave_the_scripts_optimizer(kv, fake, tmp_path, monkeypatch):
    kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.3))
    kv.init(0, ones(2))
    kv.push(0, ones(2))
    path = str(tmp_path / "states")
    kv.save_optimizer_states(path, dump_optimizer=True)

    def refuse(states):
        raise ConfigurationError("of another shape")

    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
    reader.init(0, ones(3))
    monkeypatch.setattr(other, "load_optimizer_states", refuse)
    with pytest.raises(ConfigurationError, match="of another shape"):
        reader.load_optimizer_states(path)
    reader.push(0, ones(3))
    assert other.hypers[-1].lr == 0.1


def test_a_file_without_counts_leaves_the_servers_ones_whatever_was_saved_before(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.Adam())
    kv.init(0, ones(2))
    path = str(tmp_path / "states")
    for updates in (3, 4):
        for _ in range(updates):
            kv.push(0, ones(2))
        if updates == 3:
            kv.save_optimizer_states(path)  # as Module does, without the optimizer
    kv.load_optimizer_states(path)
    assert fake.held["i:0"].count == 7


def test_a_file_of_another_optimizer_changes_nothing(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.Adam())
    kv.init(0, ones(2))
    kv.push(0, ones(2))
    path = str(tmp_path / "states")
    kv.save_optimizer_states(path)
    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    with pytest.raises(ConfigurationError, match="key 0"):
        reader.load_optimizer_states(path)
    assert "load_optimizer_states" not in other.calls
    assert isinstance(reader._updater.optimizer, mx.optimizer.SGD)


def test_saved_states_can_be_read_by_whom_the_script_lets_read_its_files(kv, tmp_path):
    kv.set_optimizer(mx.optimizer.SGD())
    (tmp_path / "own").touch()
    kv.save_optimizer_states(str(tmp_path / "states"))
    assert (tmp_path / "states").stat().st_mode == (tmp_path / "own").stat().st_mode


def test_a_failed_save_leaves_the_old_file(kv, tmp_path, monkeypatch):
    kv.set_optimizer(mx.optimizer.SGD())
    path = tmp_path / "states"
    path.write_bytes(b"old")

    def full(*_args):
        raise OSError("disk full")

    monkeypatch.setattr(kvstore_module.os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        kv.save_optimizer_states(str(path))
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("states", b"old")]


def test_no_file_is_put_in_the_place_of_a_device_or_a_pipe(kv, tmp_path):
    kv.set_optimizer(mx.optimizer.SGD())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="pipe is no file, so no optimizer states are saved there"):
        kv.save_optimizer_states(str(tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo()
