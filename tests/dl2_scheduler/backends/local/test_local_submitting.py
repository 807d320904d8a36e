"""What the local cluster takes and refuses: documents, folders, nodes."""

import os
import threading
from contextlib import suppress

import pytest

from dl2_scheduler.backends.local import storage_looks
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from tests.dl2_scheduler.local_cases import HERE, phases, slot
from tests.dl2_scheduler.played_cluster import document


def test_what_cannot_be_submitted(serve):
    cluster = serve("1x2")
    with pytest.raises(
        BadInput, match="digits: a server takes 3 slots, which no node has; the most that a node has is 2"
    ):
        cluster.desk.submit(
            document() + "    template: {spec: {containers: [{resources: {requests: {slots: 3}}}]}}\n", HERE
        )
    cluster.desk.submit(document(), HERE)
    with pytest.raises(ClusterRefused, match="digits is waiting: give another name, or stop it first: dl2 stop digits"):
        cluster.desk.submit(document(), HERE)
    cluster.desk.stop("digits")
    cluster.snapshot()
    assert cluster.desk.submit(document(), HERE) == "digits"
    assert phases(cluster) == {"digits": LiveJobPhase.WAITING}


def test_of_two_jobs_that_come_at_once_with_one_name_one_is_refused(serve, monkeypatch):
    cluster = serve()
    both, last, refused = threading.Barrier(2), JobRecords.last, []

    def together(records, name):
        found = last(records, name)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # the other looks too, if it may
        return found

    def submit():
        try:
            cluster.desk.submit(document(), HERE)
        except ClusterRefused as error:
            refused.append(str(error))

    monkeypatch.setattr(JobRecords, "last", together)
    threads = [threading.Thread(target=submit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["digits is waiting: give another name, or stop it first: dl2 stop digits"]
    assert [state.job.id for state in cluster.snapshot().jobs] == ["digits"]


def test_a_job_whose_folder_hangs_keeps_no_other_one_out(serve, monkeypatch):
    cluster, hangs, goes_on, taken = serve(), threading.Event(), threading.Event(), threading.Event()

    def is_folder(path, sound=os.path.isdir):
        if str(path) != "/away":  # others ask for other folders meanwhile
            return sound(path)
        hangs.set()
        return goes_on.wait(60.0)

    def submit():
        cluster.desk.submit(document("b"), HERE)
        taken.set()

    monkeypatch.setattr("dl2_scheduler.backends.local.desk.os.path.isdir", is_folder)
    away = document("a").replace("- command:", "- workingDir: /away\n            command:")
    threads = [threading.Thread(target=cluster.desk.submit, args=(away, HERE)), threading.Thread(target=submit)]
    threads[0].start()
    assert hangs.wait(10.0)
    threads[1].start()
    was_taken = taken.wait(20.0)
    goes_on.set()
    for thread in threads:
        thread.join()
    assert was_taken


def test_who_submits_jobs_whose_folder_hangs_is_told_so_and_keeps_no_thread(serve, monkeypatch):
    """Few threads answer people: where each of them hung, nobody could list or stop a job any more."""
    cluster, goes_on, looks = serve(), threading.Event(), []

    def is_folder(path, sound=os.path.isdir):
        if str(path) != "/away":
            return sound(path)
        looks.append(path)
        return goes_on.wait(60.0)

    monkeypatch.setattr("dl2_scheduler.backends.local.desk.os.path.isdir", is_folder)
    monkeypatch.setattr(storage_looks, "_SECONDS", 0.05)
    away = document("a").replace("- command:", "- workingDir: /away\n            command:")
    for _ in range(5):
        with pytest.raises(BadInput, match="a: workingDir: /away does not answer: submit it again when it does"):
            cluster.desk.submit(away, HERE)
    assert len(looks) == 1
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == "looks for /away":
            thread.join()
    assert cluster.desk.submit(away, HERE) == "a"


def test_a_job_runs_in_any_folder_that_is_there(serve, runtime, tmp_path):
    cluster = serve()
    here = tmp_path / "here"
    here.mkdir()
    for name, given in (("below", "data"), ("beside", "../data"), ("absolute", str(tmp_path / "data"))):
        text = document(name).replace("- command:", f"- workingDir: {given}\n            command:")
        with pytest.raises(BadInput, match=f"{name}: workingDir: there is no folder .*data: make it, or give another"):
            cluster.desk.submit(text, here)
        (here / given).mkdir()
        cluster.desk.submit(text, here)
        slot(cluster, **{name: (1, 1)})
        assert runtime.jobs[name].order.folder.samefile(here / given)
        (here / given).rmdir()


def test_virtual_nodes():
    assert [(node.name, node.capacity) for node in virtual_nodes("2x8+1x4")] == [
        ("node-0", {"slots": 8}),
        ("node-1", {"slots": 8}),
        ("node-2", {"slots": 4}),
    ]
    for wrong in ("", "8", "0x8", "2x0", "2x8cpu", "2x-1"):
        with pytest.raises(BadInput, match="is not NODESxSLOTS"):
            virtual_nodes(wrong)
    for huge in ("2000x1", "1000x1+25x1", "1x1000000", f"1x{'9' * 5000}", f"{'9' * 400}x1"):
        with pytest.raises(BadInput, match="give up to 1024 nodes, of up to 999,999 slots each"):
            virtual_nodes(huge)
