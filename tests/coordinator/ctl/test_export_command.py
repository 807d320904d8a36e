"""elasticctl export: the weights of a checkpoint, under the model's names."""

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.core.checkpoints.manifest import Manifest
from coordinator.ctl.answering import Exit
from coordinator.manifest_json import manifest_to_json
from elastic_ps.core.checkpoint_names import name_of
from elastic_ps.core.model import Model, Tensor
from elastic_ps.system.storage import MANIFEST
from protos import elastic_pb2 as pb
from tests.coordinator.played_job import World

safetensors = pytest.importorskip("safetensors.numpy")

Ctl = Callable[..., Any]

WEIGHT = np.arange(60, dtype=np.float32).reshape(12, 5)  # four blocks of 64 bytes
BIAS = np.arange(3, dtype=np.float64)
STEPS = np.array(7, dtype=np.int64)
TENSORS = (
    Tensor(0, "s:0.weight", (12, 5), "float32"),
    Tensor(0, "s:0.bias", (3,), "float64"),
    Tensor(0, "s:1.num_batches_tracked", (), "int64", auxiliary=True),
)
VALUES = {"0.weight": WEIGHT, "0.bias": BIAS, "1.num_batches_tracked": STEPS}


def saved(folder: Path, version: int = 120, tensors: Sequence[Tensor] = TENSORS, written: float = 0.0) -> Path:
    """A checkpoint of two servers, each block with a state of its own behind it."""
    made = folder / name_of(version, "mine")
    made.mkdir(parents=True)
    model = Model(tuple(tensors), 64)
    files, entries = {"s0.bin": b"", "s1.bin": b""}, {}
    for block in reversed(model.blocks):
        tensor = model.tensors[block.tensor]
        raw = VALUES[tensor.key[2:]].tobytes()[block.offset : block.offset + block.nbytes]
        data = raw.ljust(block.extent, b"\0") + b"\7" * block.extent
        name = f"s{block.id % 2}.bin"
        entries[block.id] = {
            "file": name,
            "offset": len(files[name]),
            "value_bytes": block.extent,
            "states": [["momentum", tensor.dtype, block.extent]],
            "crc32": zlib.crc32(data),
        }
        files[name] += data
    for name, content in files.items():
        (made / name).write_bytes(content)
    job = World(1, 1).state.job
    manifest = Manifest(
        version, 7, model, job.optimizers, job.data, False, job.configuration, None, entries, written=written
    )
    (made / MANIFEST).write_text(json.dumps(manifest_to_json(manifest)))
    return made


def check(path: Path) -> None:
    found = safetensors.load_file(path)
    assert found.keys() == VALUES.keys()
    for name, values in VALUES.items():
        assert found[name].dtype == values.dtype
        assert np.array_equal(found[name], values)


def test_a_checkpoint_that_is_named(ctl: Ctl, tmp_path: Path) -> None:
    made, out = saved(tmp_path / "saved"), tmp_path / "model.safetensors"
    result = ctl("export", "--from", str(made), "-o", str(out))
    assert result.exit_code == 0, result.stderr
    assert "wrote 3 tensors of version 120, 272 B, to " in result.stdout
    check(out)
    assert [path.name for path in tmp_path.glob("model*")] == ["model.safetensors"]


def test_no_file_is_put_in_the_place_of_a_device_or_a_pipe(ctl: Ctl, tmp_path: Path) -> None:
    """`-o /dev/null` took that away from the whole machine, where root asked for it."""
    made, out = saved(tmp_path / "saved"), tmp_path / "pipe"
    os.mkfifo(out)
    result = ctl("export", "--from", str(made), "-o", str(out))
    assert result.exit_code == 2
    assert "pipe is no file but a device or a pipe; name a file" in " ".join(result.stderr.replace("│", " ").split())
    assert out.is_fifo()


def test_a_running_job_is_saved_first(ctl: Ctl, fake: Any, digits: Path, tmp_path: Path) -> None:
    made, out = saved(tmp_path / "saved"), tmp_path / "model.safetensors"
    fake.checkpoint_reply = pb.CheckpointReply(url=f"file://{made}", version=120)
    result = ctl("export", "digits", "--output", str(out), "--json")
    assert json.loads(result.stdout) == {
        "file": str(out),
        "checkpoint": f"file://{made}",
        "version": 120,
        "tensors": 3,
        "bytes": 272,
    }
    check(out)


def test_of_an_ended_job_the_newest_that_is_whole(ctl: Ctl, add_job: Any, tmp_path: Path) -> None:
    job = add_job("digits", ended=5.0, status=0)
    saved(job / "checkpoints", 120)
    torn = saved(job / "checkpoints", 130)
    (torn / MANIFEST).unlink()
    assert "version 120" in ctl("export", "digits", "-o", str(tmp_path / "out")).stdout
    check(tmp_path / "out")


@pytest.mark.parametrize("named", [True, False])
def test_the_newest_is_the_one_that_was_written_last(ctl: Ctl, add_job: Any, tmp_path: Path, named: bool) -> None:
    """A job that went back to an older one saves lower versions than were there."""
    folder = add_job("digits", ended=5.0, status=0) / "checkpoints"
    for version, written in ((130, 7.0), (120, 9.0), (110, 8.0)):
        saved(folder, version, written=written)
    meant = ["--from", str(folder)] if named else ["digits"]
    assert "version 120" in ctl("export", *meant, "-o", str(tmp_path / "out")).stdout
    damage(next(folder.glob("*120*")))
    result = ctl("export", *meant, "-o", str(tmp_path / "out"))
    assert "version 110" in result.stdout
    assert "passed over, for an older one:" in result.stderr
    assert "in s0.bin is damaged: its checksum differs" in result.stderr
    (next(folder.glob("*110*")) / MANIFEST).write_text("{}")
    damage(next(folder.glob("*130*")))
    result = ctl("export", *meant, "-o", str(tmp_path / "out"))
    assert result.exit_code == Exit.FAILED
    assert "not a manifest" in result.stderr
    assert result.stderr.count("passed over") == 2


def test_an_ended_job_that_has_saved_nothing(ctl: Ctl, add_job: Any, tmp_path: Path) -> None:
    add_job("digits", ended=5.0, status=0)
    result = ctl("export", "digits", "-o", str(tmp_path / "out"))
    assert result.exit_code == Exit.FAILED
    assert "job digits has ended, and" in result.stderr
    assert "by --from that folder" in result.stderr


def damage(made: Path) -> None:
    content = bytearray((made / "s0.bin").read_bytes())
    content[5] ^= 1
    (made / "s0.bin").write_bytes(content)


def cut_off(made: Path) -> None:
    content = (made / "s0.bin").read_bytes()
    (made / "s0.bin").write_bytes(content[:-1])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (damage, "in s0.bin is damaged: its checksum differs"),
        (cut_off, "in s0.bin is damaged: its checksum differs"),
        (lambda made: (made / "s1.bin").unlink(), "s1.bin"),
        (lambda made: (made / MANIFEST).write_text("{}"), "not a manifest"),
    ],
)
def test_a_damaged_checkpoint_leaves_no_file(ctl: Ctl, tmp_path: Path, harm: Any, words: str) -> None:
    made, out = saved(tmp_path / "saved"), tmp_path / "model.safetensors"
    harm(made)
    result = ctl("export", "--from", str(made), "-o", str(out))
    assert result.exit_code == Exit.FAILED
    assert words in result.stderr
    assert not list(tmp_path.glob("model*"))


def test_two_key_stores_with_one_name(ctl: Ctl, tmp_path: Path) -> None:
    made = saved(tmp_path / "saved", tensors=(TENSORS[1], Tensor(1, "s:0.bias", (3,), "float64")))
    result = ctl("export", "--from", str(made), "-o", str(tmp_path / "out"))
    assert "2 key stores have a key 0.bias" in result.stderr
    assert 'torch.nn.ModuleDict({"G": netG, "D": netD})' in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["digits", "--from", ""], 2, "a variable of the shell may not be set"),
        (["--from", " "], 2, "a variable of the shell may not be set"),
        (["digits", "--from", "file:///a"], 2, "leave the job out"),
        (["--from", "file:///nowhere/a", "-o", "."], 2, "is a folder; name a file"),
        (["--from", "file:///nowhere/a", "-o", "/no/such/folder/out"], 2, "nothing can be written in /no/such/folder"),
        (["--from", "file:///nowhere/a"], 1, "file:///nowhere/a holds no complete checkpoint"),
    ],
)
def test_what_cannot_be_is_refused(ctl: Ctl, tmp_path: Path, arguments: list[str], status: int, words: str) -> None:
    out = [] if "-o" in arguments else ["-o", str(tmp_path / "out")]
    result = ctl("export", *arguments, *out)
    assert result.exit_code == status
    assert words in " ".join(result.stderr.replace("│", " ").split())
