"""A checkpoint that a server cannot load: it says so, holds nothing of it, and loads another."""

import json
from pathlib import Path

import pytest

from elastic_ps.control import codec
from elastic_ps.server.phases import BlockStatus
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import SGD, TENSORS


def saved(job: Job, folder: Path) -> Path:
    """A checkpoint of the first values; its manifest's path."""
    job.drain("w0")  # they are there
    job.direct("s0", save=pb.Save(clock=0, url=f"file://{folder}"))
    blocks = json.loads(job.controls["s0"].await_answer(pb.SAVED).detail)["blocks"]
    path = folder / "manifest.json"
    path.write_text(json.dumps({"version": 0, "blocks": blocks}))
    return path


def prepare(job: Job, manifest: Path, number: int) -> None:
    """Order a start from a checkpoint."""
    configuration = codec.configuration_to_pb(job.next([], ["s0"], job.spread(1)))
    configuration.id.number = number
    job.direct("s0", prepare=pb.Prepare(configuration=configuration, restore=f"file://{manifest}"))


def harm(path: Path, what: str) -> None:
    data = path.parent / "s0.bin"
    whole = data.read_bytes()
    if what == "a byte":
        data.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif what == "the end":
        data.write_bytes(whole[:-20])
    elif what == "the data":
        data.unlink()
    elif what == "the manifest":
        path.write_text(path.read_text()[:100])
    else:
        value = json.loads(path.read_text())
        del value["blocks"]["0"]
        path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("what", "answer", "says"),
    [
        ("a byte", pb.UNREADABLE, "block 0 in s0.bin is damaged: its checksum differs"),
        ("the end", pb.UNREADABLE, "block 12 in s0.bin is damaged: 364 bytes of 384 are there"),
        ("the data", pb.UNREAD, "cannot be read: [Errno 2] No such file"),
        ("the manifest", pb.UNREADABLE, "cannot be read: JSONDecodeError"),
        ("an entry", pb.UNREADABLE, "it lacks block 0"),
    ],
)
def test_a_server_says_that_it_cannot_load_and_loads_another(
    jobs: Jobs, tmp_path: Path, what: str, answer: int, says: str
) -> None:
    old = jobs.begin(Job(TENSORS, SGD))
    good = saved(old, tmp_path / "good")
    bad = saved(jobs.begin(Job(TENSORS, SGD)), tmp_path / "bad")
    harm(bad, what)
    job = jobs.keep(Job(TENSORS, SGD))
    control = job.add_server("s0")
    prepare(job, bad, 1)
    assert says in control.await_answer(answer).detail
    store = job.servers["s0"].state.store
    assert not (store.status == BlockStatus.PRIMARY).any()
    assert not (store.status == BlockStatus.EMPTY).any()
    prepare(job, good, 2)
    control.await_answer(pb.PREPARED)
    blocks = list(range(len(job.model.blocks)))
    assert store.held(BlockStatus.PRIMARY).tolist() == blocks
    assert job.image("s0", blocks) == old.image("s0", blocks)
