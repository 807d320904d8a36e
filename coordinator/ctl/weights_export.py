"""This module writes the weights of a job's checkpoint into a safetensors file, under the model's parameter names."""

import json
import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.core.checkpoints.manifest import NO_AGE, Manifest
from coordinator.ctl.job_folders import LocalJob
from coordinator.ctl.text_columns import bytes_text
from coordinator.manifest_json import manifest_from_json
from elastic_ps.core.errors import CheckpointError, ConfigurationError
from elastic_ps.core.model import Tensor
from elastic_ps.system import storage
from elastic_ps.system.extras import how_to_install


@dataclass(frozen=True)
class Exported:
    """An `Exported` says what a file of weights holds.

    Attributes:
        path: of the file.
        checkpoint: URL of the checkpoint's folder.
        version: of the weights: the updates that they had.
        tensors: how many there are, buffers among them.
        nbytes: of their values.
    """

    path: Path
    checkpoint: str
    version: int
    tensors: int
    nbytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "file": str(self.path),
            "checkpoint": self.checkpoint,
            "version": self.version,
            "tensors": self.tensors,
            "bytes": self.nbytes,
        }

    def __str__(self) -> str:
        return f"wrote {self.tensors} tensors of version {self.version}, {bytes_text(self.nbytes)}, to {self.path}"


def check_output(path: Path) -> None:
    """Do nothing where a file of weights can be written.

    Raises:
        ConfigurationError: safetensors is not installed, or nothing can be written there; the message says what to do.
    """
    try:
        import safetensors.numpy  # noqa: F401  (an operator's machine may have no use for it)
    except ImportError as error:
        raise ConfigurationError(
            f"export needs the package safetensors ({error}): {how_to_install('torch')}"
        ) from error
    if os.path.isdir(path):  # which no name is too long for, as for Path's
        raise ConfigurationError(f"--output {path} is a folder; name a file, such as {path / 'model.safetensors'}")
    if os.path.exists(path) and not os.path.isfile(path):  # a file would be put in the place of /dev/null
        raise ConfigurationError(f"--output {path} is no file but a device or a pipe; name a file")
    if not os.access(path.parent, os.W_OK):
        raise ConfigurationError(
            f"--output {path}: nothing can be written in {path.parent}; name a folder that is there"
        )


def export_newest(folder: str, path: Path, skipped: Callable[[str], None]) -> Exported:
    """Write the weights of the checkpoint in a folder that was written last, or of the folder, if it is one.

    Args:
        folder: its URL.
        path: of the file; one that is there is replaced.
        skipped: is told of each one that is passed over, as it cannot be exported, and why.

    Raises:
        CheckpointError: there is none, or none that can be exported.
        ConfigurationError: the file cannot be written.
        StorageError: the storage cannot be read.
    """
    found = _newest_first(folder)
    for older, url in enumerate(found, start=1):
        try:
            return export_weights(url, path)
        except CheckpointError as error:
            if older == len(found):
                raise
            skipped(str(error))
    raise CheckpointError(f"{folder} holds no complete checkpoint")


def _newest_first(folder: str) -> list[str]:
    """Return the URLs of what has a manifest; one that went back to an older checkpoint saves lower versions again."""
    ages: dict[str, tuple[float, int]] = {}
    with suppress(FileNotFoundError):
        for url in storage.candidates(folder):
            try:
                ages[url] = _manifest(url).age
            except FileNotFoundError:
                continue  # it is not whole
            except (ValueError, KeyError, TypeError, AttributeError, CheckpointError):
                ages[url] = NO_AGE
    return sorted(ages, key=ages.__getitem__)


def _manifest(url: str) -> Manifest:
    """Read a manifest. Raises as `storage.read`, CheckpointError, and what JSON of another shape leads to."""
    return manifest_from_json(json.loads(storage.read(f"{url}/{storage.MANIFEST}")))


def export_last(job: LocalJob, path: Path, skipped: Callable[[str], None]) -> Exported:
    """Write the weights of the newest checkpoint in the folder of a job that has ended.

    Args:
        job: that has ended.
        path: see `export_newest`.
        skipped: likewise.

    Raises:
        CheckpointError: there is none; the message says what to do.
        ConfigurationError, StorageError: see `export_newest`.
    """
    try:
        return export_newest(str(job.checkpoints), path, skipped)
    except CheckpointError as error:
        raise CheckpointError(
            f"job {job.name} has ended, and {error}. If it had a folder for them elsewhere (elasticrun --checkpoint), "
            "export by --from that folder; a script that is to leave its weights saves them at its end, in the chief"
        ) from error


def export_weights(url: str, path: Path) -> Exported:
    """Write the weights of a checkpoint into a file, whole or not at all.

    Args:
        url: folder of the checkpoint.
        path: of the file; one that is there is replaced.

    Raises:
        CheckpointError: the checkpoint is damaged, or does not name its weights.
        ConfigurationError: the file cannot be written.
        StorageError: the storage cannot be read.
    """
    from safetensors.numpy import save_file

    try:
        manifest = _manifest(url)
        names = _names(manifest.model.tensors)
        arrays = dict(zip(names, _values(url, manifest), strict=True))
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, CheckpointError) as error:
        raise CheckpointError(f"{url} cannot be exported: {error}") from error
    part = path.with_name(f"{path.name}.part")
    try:
        save_file(arrays, part, {"format": "pt", "elastic_ps.version": str(manifest.version)})
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"--output {path} cannot be written: {error.strerror or error}") from error
    return Exported(path, url, manifest.version, len(arrays), sum(array.nbytes for array in arrays.values()))


def _names(tensors: Sequence[Tensor]) -> list[str]:
    """Return the name of each tensor, as the script wrote its key.

    Raises:
        CheckpointError: two have the same.
    """
    names = [tensor.key[2:] for tensor in tensors]
    if not names:
        raise CheckpointError("the job had no parameters yet")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise CheckpointError(
            f"{count} key stores have a key {name}, and a file of weights needs one name for each tensor. In PyTorch a "
            'job of several models is given one of all, torch.nn.ModuleDict({"G": netG, "D": netD}), as the model of '
            "each elastic.Optimizer; of this job the script's chief can save each model's state_dict() by itself"
        )
    return names


def _values(url: str, manifest: Manifest) -> Iterator[NDArray[Any]]:
    """Yield the values of each tensor, in the order of the model."""
    model = manifest.model
    found = [np.empty(tensor.nbytes, dtype=np.uint8) for tensor in model.tensors]
    for name, blocks in _by_file(manifest).items():
        with storage.asked(f"{url}/{name}"):
            system, place = storage.located(f"{url}/{name}")
            with system.open(place, "rb") as file:
                for number in blocks:
                    block, entry = model.blocks[number], manifest.blocks[number]
                    file.seek(int(entry["offset"]))
                    data = file.read(int(entry["value_bytes"]) + sum(int(size) for _, _, size in entry["states"]))
                    if zlib.crc32(data) != int(entry["crc32"]):
                        raise CheckpointError(f"block {number} in {name} is damaged: its checksum differs")
                    values = np.frombuffer(data, np.uint8, block.nbytes)
                    found[block.tensor][block.offset : block.offset + block.nbytes] = values
    for tensor, values in zip(model.tensors, found, strict=True):
        yield values.view(tensor.dtype).reshape(tensor.shape)


def _by_file(manifest: Manifest) -> dict[str, list[int]]:
    """Return the blocks by the file in which they lie, in the order in which they lie there."""
    files: dict[str, list[int]] = defaultdict(list)
    for block in sorted(manifest.blocks, key=lambda block: int(manifest.blocks[block]["offset"])):
        files[str(manifest.blocks[block]["file"])].append(block)
    return files
