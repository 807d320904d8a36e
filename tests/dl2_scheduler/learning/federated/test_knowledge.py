"""What a cluster tells others: read as it was written, and refused where anything is wrong."""

import json
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.federated.knowledge import encoded, read_knowledge, type_digest
from dl2_scheduler.policies.learnt.weights import Weights
from tests.dl2_scheduler.learning.federated.clusters import SPEEDS, arrays_of, knowledge


def test_what_was_told_is_read(tmp_path):
    told = knowledge()
    (tmp_path / "file").write_bytes(encoded(told))
    found = read_knowledge(tmp_path / "file")
    assert (found.cluster, found.at, found.speeds) == (told.cluster, told.at, told.speeds)
    assert found.weights.models == told.weights.models
    assert all(np.array_equal(found.weights.arrays[name], array) for name, array in told.weights.arrays.items())
    assert found.measured == told.measured == sum(count for of in SPEEDS.values() for count, _ in of.values())


def test_no_name_of_a_type_is_in_it():
    data = encoded(
        knowledge(speeds={"registry.example/ann/secret": SPEEDS["a"]}, models=("registry.example/ann/secret",))
    )
    for encoding in ("utf-8", "utf-32-le"):  # numpy's arrays of text have the latter
        assert "secret".encode(encoding) not in data
        assert "ann".encode(encoding) not in data
    assert type_digest("registry.example/ann/secret").encode("utf-32-le") in data


def test_a_cluster_that_has_measured_nothing_tells_its_policy(tmp_path):
    (tmp_path / "file").write_bytes(encoded(knowledge(speeds={})))
    assert read_knowledge(tmp_path / "file").speeds == {}


def test_speeds_of_jobs_without_servers_are_told_and_read(tmp_path):
    told = knowledge(speeds={"a": {(0, 2): (3, 17.0), (1, 2): (1, 12.0)}})
    (tmp_path / "file").write_bytes(encoded(told))
    assert read_knowledge(tmp_path / "file").speeds == told.speeds


def test_more_than_others_would_read_is_not_written():
    wide = {"a": {(servers, workers): (1, 1.0) for servers in range(1, 301) for workers in range(1, 301)}}
    with pytest.raises(BadInput, match="more than others would read"):
        encoded(knowledge(speeds=wide))


def changed_counts(row):
    return {"counts": np.array([row], dtype=np.int64), "means": np.array([5.0])}


WRONG = {
    "another format": ({"format": 2}, {}, "its format is 2, not 1"),
    "no time": ({"at": float("nan")}, {}, "which is no time"),
    "a text for a time": ({"at": "now"}, {}, "which is no time"),
    "names instead of digests": ({"models": ["resnet"]}, {}, "other than by digests"),
    "a name twice": ({"models": [type_digest("a")] * 2}, {}, "a name twice"),
    "no types of speeds": ({"types": []}, {}, "a type, a number of tasks"),
    "a type too many": ({}, changed_counts([9, 1, 1, 1]), "a type, a number of tasks"),
    "no workers": ({}, changed_counts([0, 1, 0, 1]), "a number of tasks"),
    "a million servers": ({}, changed_counts([0, 10**6, 1, 1]), "a number of tasks"),
    "negative slots": ({}, changed_counts([0, 1, 1, -1]), "a number of tasks"),
    "counts with fractions": (
        {},
        {"counts": np.ones((1, 4)), "means": np.array([5.0])},
        "counts of speeds are float64",
    ),
    "speeds that lack": ({}, {"means": np.array([5.0])}, "counts have speeds of float64"),
    "a speed that is no number": ({}, {"means": np.full(5, np.nan)}, "a speed is impossible"),
    "a negative speed": ({}, {"means": np.full(5, -1.0)}, "a speed is impossible"),
    "an infinite speed": ({}, {"means": np.full(5, np.inf)}, "a speed is impossible"),
    "weights that are not finite": ({}, {"share": np.full(96, np.nan, dtype=np.float32)}, "not finite"),
    "weights that nobody has learnt": ({}, {"share": np.full(96, -2e3, dtype=np.float32)}, "weights are above 1000"),
    "weights of another shape": ({}, {"share": np.zeros(5, dtype=np.float32)}, "share has the shape"),
    "weights of double precision": ({}, {"share": np.zeros(96)}, "share is of float64"),
}


@pytest.mark.parametrize(("about", "arrays", "why"), WRONG.values(), ids=list(WRONG))
def test_what_is_impossible_is_refused(tmp_path, about, arrays, why):
    found = arrays_of(knowledge())
    told = json.loads(str(found["about"])) | about
    np.savez(tmp_path / "file.npz", **{**found, "about": np.array(json.dumps(told)), **arrays})
    with pytest.raises(BadInput, match=why):
        read_knowledge(tmp_path / "file.npz")


def test_files_that_are_nothing_of_ours_are_refused_and_nothing_in_them_is_run(tmp_path):
    file = tmp_path / "file"
    objects = {"about": np.array([print], dtype=object)}
    np.savez(tmp_path / "objects.npz", **objects)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.npy", bytes(100 << 20))
    wrong = [b"", b"no archive", pickle.dumps({"about": 1}), bytes(5 << 20), b"PK\x05\x06" + bytes(18)]
    wrong += [(tmp_path / name).read_bytes() for name in ("objects.npz", "bomb.zip")]
    for data in wrong:
        file.write_bytes(data)
        with pytest.raises(BadInput):
            read_knowledge(file)
    for path in (tmp_path, tmp_path / "missing", "/dev/zero"):
        with pytest.raises(BadInput):
            read_knowledge(path)


DATA = encoded(knowledge())


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(DATA) - 1), length=st.integers(0, 64), filling=st.binary(max_size=64))
def test_a_damaged_file_is_read_or_refused(tmp_path, at, length, filling):
    (tmp_path / "file").write_bytes(DATA[:at] + filling + DATA[at + length :])
    try:
        found = read_knowledge(tmp_path / "file")
    except BadInput:
        return
    assert all(np.isfinite(array).all() for array in found.weights.arrays.values())


def test_weights_of_other_sizes_can_be_told(tmp_path):
    one = knowledge()
    narrow = Weights(one.weights.models, {**one.weights.arrays, "stop.weight": one.weights.arrays["stop.weight"] * 2})
    (tmp_path / "file").write_bytes(encoded(replace(one, weights=narrow)))
    assert read_knowledge(tmp_path / "file").weights.arrays["stop.weight"].shape == (1, 16)
