"""The folder that clusters share: files are whole, read once, and what is wrong with one is its own."""

import logging
import os

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.federated.knowledge import encoded
from dl2_scheduler.learning.federated.shared_folder import MOST_CLUSTERS, SharedFolder, federation_id, shared_folder
from tests.dl2_scheduler.learning.federated.clusters import IDS, NOW, knowledge

DAY = 86_400.0
ME, OTHER = IDS


@pytest.fixture
def folder(tmp_path):
    return SharedFolder(tmp_path, ME, lambda: NOW)


def put(path, cluster=OTHER, **told):
    file = path / f"cluster-{cluster}.npz"
    file.write_bytes(encoded(knowledge(cluster, **told)))
    return file


def clusters(folder):
    return [told.cluster for told in folder.others()]


def test_each_reads_what_the_others_wrote_and_not_its_own(tmp_path, folder):
    theirs = SharedFolder(tmp_path, OTHER, lambda: NOW)
    folder.publish(knowledge(ME))
    theirs.publish(knowledge(OTHER))
    assert clusters(folder) == [OTHER]
    assert clusters(theirs) == [ME]
    assert sorted(os.listdir(tmp_path)) == [f"cluster-{ME}.npz", f"cluster-{OTHER}.npz"]
    assert folder.ignored == theirs.ignored == {}


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path, folder, monkeypatch):
    put(tmp_path)
    (once,), (again,) = folder.others(), folder.others()
    assert again is once
    put(tmp_path, at=NOW + 1)
    (changed,) = folder.others()
    assert changed.at == NOW + 1


def test_what_is_wrong_with_a_file_is_said_once_and_the_others_are_read(tmp_path, folder, caplog):
    put(tmp_path)
    (tmp_path / "cluster-1111111111111111.npz").write_bytes(b"damaged")
    (tmp_path / "notes.txt").write_text("of somebody")
    (tmp_path / "cluster-2222222222222222.npz").mkdir()
    (tmp_path / "cluster-3333333333333333.npz").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "cluster-4444444444444444.npz")
    put(tmp_path).rename(tmp_path / "cluster-5555555555555555.npz")
    put(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert clusters(folder) == [OTHER]
    assert len(caplog.records) == len(folder.ignored) == 6
    assert "give clusters a folder of their own" in folder.ignored["notes.txt"]
    assert folder.ignored["cluster-5555555555555555.npz"] == "it tells of another cluster than its name"
    (tmp_path / "notes.txt").unlink()
    folder.others()
    assert "notes.txt" not in folder.ignored


def test_a_huge_name_or_reason_does_not_fill_the_log(tmp_path, folder, caplog):
    (tmp_path / ("x" * 250)).touch()
    with caplog.at_level(logging.WARNING):
        folder.others()
    assert len(caplog.records[0].getMessage()) < 400


@pytest.mark.parametrize(
    ("days", "why"), [(-31, "it is 31 days old"), (-29, None), (0.5, None), (2, "its clock is 2 days ahead")]
)
def test_what_is_old_or_of_the_future_does_not_count(tmp_path, folder, days, why):
    file = put(tmp_path, at=NOW + days * DAY)
    assert clusters(folder) == ([] if why else [OTHER])
    assert folder.ignored == ({file.name: why} if why else {})


def test_of_many_the_latest_are_read(tmp_path, folder):
    for number in range(MOST_CLUSTERS + 2):
        file = put(tmp_path, f"{number:016x}")
        os.utime(file, (number, number))
    assert clusters(folder) == [f"{number:016x}" for number in range(2, MOST_CLUSTERS + 2)]
    assert set(folder.ignored.values()) == {f"{MOST_CLUSTERS} others are newer"}


def test_ones_own_file_takes_no_place_of_others(tmp_path, folder):
    for number in range(MOST_CLUSTERS):
        put(tmp_path, f"{number:016x}")
    folder.publish(knowledge(ME))
    assert len(clusters(folder)) == MOST_CLUSTERS
    assert not folder.ignored


def test_what_was_read_of_clusters_that_are_not_among_the_latest_any_more_is_not_kept(tmp_path, folder):
    """A cluster that is served in a new folder each time leaves a file behind each time."""
    for number in range(3 * MOST_CLUSTERS):
        file = put(tmp_path, f"{number:016x}")
        os.utime(file, (number, number))
        folder.others()
    assert len(folder._read) == MOST_CLUSTERS


def test_what_a_process_left_half_written_is_replaced_and_a_link_not_followed(tmp_path, folder):
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    victim.write_text("mine")
    (tmp_path / f".cluster-{ME}.partial").symlink_to(victim)
    (tmp_path / f".cluster-{OTHER}.partial").write_bytes(b"half")
    folder.publish(knowledge(ME))
    assert victim.read_text() == "mine"
    assert folder.others() == []
    assert folder.ignored == {}, "what another one is about to write is nothing wrong"


def test_a_copy_of_a_cluster_that_has_the_same_id_is_told_of(tmp_path, folder):
    folder.publish(knowledge(ME))
    assert not folder.others()
    SharedFolder(tmp_path, ME, lambda: NOW).publish(knowledge(ME))
    folder.others()
    assert "another cluster writes it too: delete federation-id" in folder.ignored[f"cluster-{ME}.npz"]
    folder.publish(knowledge(ME))
    folder.others()
    assert folder.ignored == {}


@pytest.mark.parametrize(("mode", "expected"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o770, 0o640)])
def test_who_may_read_the_folder_may_read_the_file_and_nobody_else_writes_it(tmp_path, folder, mode, expected):
    tmp_path.chmod(mode)
    folder.publish(knowledge(ME))
    assert (tmp_path / f"cluster-{ME}.npz").stat().st_mode & 0o777 == expected


def test_a_cluster_keeps_its_id(tmp_path):
    found = federation_id(tmp_path)
    assert federation_id(tmp_path) == found
    (tmp_path / "federation-id").write_bytes(b"\xff damaged")
    other = federation_id(tmp_path)
    assert other != found
    assert federation_id(tmp_path) == other


def test_a_folder_that_may_be_shared(tmp_path):
    found = shared_folder(tmp_path / "new")
    assert found.stat().st_mode & 0o777 == 0o700
    assert shared_folder(found) == found
    found.chmod(0o777)
    with pytest.raises(BadInput, match=f"first chmod o-w {found}"):
        shared_folder(found)
    (tmp_path / "file").touch()
    for wrong in ("file", "no/such", "nul\0"):
        with pytest.raises(BadInput, match="give a folder that can be written"):
            shared_folder(tmp_path / wrong)
