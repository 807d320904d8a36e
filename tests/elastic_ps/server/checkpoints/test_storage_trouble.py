"""A server whose storage is in trouble: what is written is safe or told; what cannot be read now is read later."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from elastic_ps.control import codec
from elastic_ps.core.configuration import ConfigId
from elastic_ps.server.checkpoints import restoring, saving
from elastic_ps.server.phases import BlockStatus
from elastic_ps.system import storage
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import SGD, TENSORS
from tests.elastic_ps.waiting import until

TIMEOUT = 20.0


class ForeignError(Exception):
    """As boto's are: no OSError."""


def save(job: Job, clock: int, folder: Path) -> dict[str, Any]:
    job.direct("s0", save=pb.Save(clock=clock, url=f"file://{folder}"))
    answer: dict[str, Any] = json.loads(job.controls["s0"].await_answer(pb.SAVED).detail)
    return answer


def whole(jobs: Jobs, folder: Path) -> tuple[Job, Path]:
    """A job that has saved itself; its manifest."""
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    blocks = save(job, 1, folder)["blocks"]
    (folder / "manifest.json").write_text(json.dumps({"version": 1, "blocks": blocks}))
    return job, folder / "manifest.json"


def prepare(job: Job, manifest: Path, number: int = 1) -> None:
    configuration = codec.configuration_to_pb(job.next([], ["s0"], job.spread(1)))
    configuration.id.number = number
    job.direct("s0", prepare=pb.Prepare(configuration=configuration, restore=f"file://{manifest}"))


# ---- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(5, "Input/output error"), ForeignError("403")]
)
def test_a_save_that_fails_is_told_leaves_nothing_and_training_goes_on(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception
) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    failed = []

    def fails(*_arguments: Any) -> None:
        failed.append(call)
        raise error

    with monkeypatch.context() as patch:
        if call == "fsync":
            patch.setattr(os, "fsync", fails)
        else:
            patch.setattr("elastic_ps.server.checkpoints.files.BlockFileWriter.write", fails)
        (tmp_path / "full").mkdir()
        says = save(job, 1, tmp_path / "full")["error"]
    assert failed == [call]
    assert "s0 cannot write to" in says
    assert str(error) in says
    assert list((tmp_path / "full").iterdir()) == [], "half a file would fill the disk further"
    job.check_step(1)
    job.controls["s0"].answers.clear()
    assert "blocks" in save(job, 2, tmp_path / "other")


def test_data_and_its_folders_are_synced_before_saved_is_answered(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    synced: list[tuple[str, int]] = []
    usual = os.fsync

    def fsync(descriptor: int) -> None:
        saved = [answer for answer in job.controls["s0"].answers if answer.answer == pb.SAVED]
        synced.append((os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path), len(saved)))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    save(job, 1, tmp_path / "root" / "version-1")
    assert synced == [("root", 0), (".", 0), ("root/version-1/s0.bin", 0), ("root/version-1", 0)]


def test_what_is_given_up_leaves_no_file(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Semaphore(0)
    usual = saving.Saver._write

    def write(self: Any, snapshot: Any) -> None:
        usual(self, snapshot)
        over.release()

    monkeypatch.setattr(saving.Saver, "_write", write)
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    job.direct("s0", save=pb.Save(clock=9, url=f"file://{tmp_path}/first"))
    save(job, 1, tmp_path / "second")
    for _ in range(2):
        assert over.acquire(timeout=TIMEOUT)
    assert [path.name for path in tmp_path.rglob("*.bin")] == ["s0.bin"]
    assert (tmp_path / "second" / "s0.bin").exists()


@pytest.mark.parametrize("folder", ["first", "second"])
def test_an_order_that_was_given_up_while_the_job_stood_still_can_be_given_again(
    jobs: Jobs, tmp_path: Path, folder: str
) -> None:
    """By half an hour later no version has come, so the clock is the same. Its coordinator has removed the folder."""
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    job.direct("s0", save=pb.Save(clock=2, url=f"file://{tmp_path}/first"))
    until(lambda: any(thread.name == "checkpoint" for thread in threading.enumerate()))
    shutil.rmtree(tmp_path / "first", ignore_errors=True)
    job.direct("s0", save=pb.Save(clock=2, url=f"file://{tmp_path}/{folder}"))
    job.check_step(1)
    assert "blocks" in json.loads(job.controls["s0"].await_answer(pb.SAVED).detail)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.bin")] == [f"{folder}/s0.bin"]


def test_what_a_node_wrote_for_an_order_that_failed_it_takes_back(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that has the folder for itself nobody else does: orders left copies until the disk was full."""
    over = threading.Semaphore(0)
    usual = storage.take_back

    def take_back(url: str, name: str) -> None:
        usual(url, name)
        over.release()

    monkeypatch.setattr(storage, "take_back", take_back)
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    alone, shared, whole_one, last = (tmp_path / name for name in ("alone", "shared", "whole", "last"))
    shared.mkdir()
    (shared / "s1.bin").touch()
    save(job, 1, alone)
    for clock, (before, folder) in enumerate(pairwise((alone, shared, whole_one, last)), start=2):
        if folder is last:
            (whole_one / "manifest.json").touch()
        job.check_step(clock - 1)
        for _ in range(2):  # as it is sent again until it is answered
            job.direct("s0", save=pb.Save(clock=clock, url=f"file://{folder}", given_up=f"file://{before}"))
        until(lambda to=folder: (to / "s0.bin").exists() and f'"file://{to}"' in job.controls["s0"].answers[-1].detail)
        assert over.acquire(timeout=TIMEOUT)
    assert not over.acquire(blocking=False), "once"
    assert not alone.exists()
    assert [path.name for path in shared.iterdir()] == ["s1.bin"]
    assert sorted(path.name for path in whole_one.iterdir()) == ["manifest.json", "s0.bin"]


def test_what_cannot_be_taken_back_stays_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def rm_file(_system: Any, path: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(LocalFileSystem, "rm_file", rm_file)
    (tmp_path / "s0.bin").touch()
    storage.take_back(str(tmp_path), "s0.bin")
    assert f"s0.bin of {tmp_path} stays" in caplog.text
    monkeypatch.undo()
    storage.take_back(str(tmp_path / "gone"), "s0.bin")


# ---- reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def opening(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> Iterator[None]:
    """`act` is called with the path before a file is opened to be read."""
    usual = LocalFileSystem.open

    def opens(self: Any, path: str, mode: str = "rb", **named: Any) -> Any:
        if mode == "rb":
            act(path)
        return usual(self, path, mode, **named)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "open", opens)
        yield


@pytest.mark.parametrize("which", ["manifest.json", "s0.bin"])
def test_a_read_that_fails_once_is_done_again(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    old, manifest = whole(jobs, tmp_path)
    job = jobs.keep(Job(TENSORS, SGD))
    control = job.add_server("s0")
    failed: list[str] = []

    def fails_once(path: str) -> None:
        if path.endswith(which) and not failed:
            failed.append(path)
            raise ForeignError("503 Slow Down")

    with opening(monkeypatch, fails_once):
        prepare(job, manifest)
        control.await_answer(pb.PREPARED)
    assert failed
    assert pb.UNREAD not in [answer.answer for answer in control.answers]
    blocks = list(range(len(job.model.blocks)))
    assert job.image("s0", blocks) == old.image("s0", blocks)


def test_what_cannot_be_read_in_time_is_told_not_to_be_damaged(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manifest = whole(jobs, tmp_path)
    job = jobs.keep(Job(TENSORS, SGD))
    control = job.add_server("s0")
    job.servers["s0"]._restorer._patience = 0.0

    def fails(_path: str) -> None:
        raise OSError(5, "Input/output error")

    with opening(monkeypatch, fails):
        prepare(job, manifest)
        assert "Input/output error" in control.await_answer(pb.UNREAD).detail
    store = job.servers["s0"].state.store
    assert not (store.status == BlockStatus.PRIMARY).any()
    prepare(job, manifest, 2)
    control.await_answer(pb.PREPARED)


def test_a_server_answers_and_reports_while_its_storage_hangs_and_gives_up_in_time(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its lease would run out over a large checkpoint, or its order to end go unheard."""
    _, manifest = whole(jobs, tmp_path)
    job = jobs.keep(Job(TENSORS, SGD))
    control = job.add_server("s0")
    server = job.servers["s0"]
    reading, answered = threading.Event(), threading.Event()

    def hangs(path: str) -> None:
        if path.endswith("s0.bin"):
            reading.set()
            assert answered.wait(TIMEOUT)

    with opening(monkeypatch, hangs):
        prepare(job, manifest)
        assert reading.wait(TIMEOUT)
        assert server.report().version == 0
        prepare(job, manifest)  # it is asked again, and again not blocked
        assert not control.answers
        server._restorer._stuck = 0.0
        prepare(job, manifest)
        assert "has given nothing for" in control.await_answer(pb.UNREAD).detail
        prepare(job, manifest, 2)
        answered.set()
        control.await_answer(pb.PREPARED)
    answers = [answer.answer for answer in control.answers]
    assert (answers.count(pb.UNREAD), answers.count(pb.PREPARED)) == (1, 1), "the first reader keeps still"


def test_a_worker_that_dies_while_servers_load_costs_no_block(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death's plan comes into the start: the configuration switches, and unloaded blocks still load."""
    old, manifest = whole(jobs, tmp_path)
    job = jobs.keep(Job(TENSORS, SGD))
    control = job.add_server("s0")
    reading, died = threading.Event(), threading.Event()

    def waits(path: str) -> None:
        if path.endswith("s0.bin") and not reading.is_set():
            reading.set()
            assert died.wait(TIMEOUT)

    def start(workers: list[str], number: int, dead: list[str]) -> None:
        configuration = codec.configuration_to_pb(job.next(workers, ["s0"], job.spread(1)))
        configuration.id.number = number
        job.direct("s0", prepare=pb.Prepare(configuration=configuration, dead=dead, restore=f"file://{manifest}"))

    with opening(monkeypatch, waits):
        start(["w0", "w1"], 1, [])
        assert reading.wait(TIMEOUT)
        start(["w1"], 2, ["w0"])
        died.set()
        prepared = control.await_answer(pb.PREPARED, number=ConfigId(1, 2))
    assert prepared
    blocks = list(range(len(job.model.blocks)))
    assert job.servers["s0"].state.store.held(BlockStatus.PRIMARY).tolist() == blocks
    assert job.image("s0", blocks) == old.image("s0", blocks)


def test_a_start_whose_plan_is_cancelled_stops_reading(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manifest = whole(jobs, tmp_path)
    job = jobs.keep(Job(TENSORS, SGD))
    control = job.add_server("s0")
    reading, cancelled, over = threading.Event(), threading.Event(), threading.Event()

    def waits(path: str) -> None:
        if path.endswith("s0.bin"):
            reading.set()
            assert cancelled.wait(TIMEOUT)

    usual = restoring.Restorer._run

    def run(self: Any, *arguments: Any) -> None:
        usual(self, *arguments)
        over.set()

    monkeypatch.setattr(restoring.Restorer, "_run", run)
    with opening(monkeypatch, waits):
        prepare(job, manifest)
        assert reading.wait(TIMEOUT)
        number = job.next([], ["s0"], job.spread(1)).id
        job.direct("s0", cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(number._replace(number=1))))
        control.await_answer(pb.CANCELLED)
        cancelled.set()
        assert over.wait(TIMEOUT)
    assert [answer.answer for answer in control.answers] == [pb.CANCELLED]
    assert not (job.servers["s0"].state.store.status == BlockStatus.PRIMARY).any()
