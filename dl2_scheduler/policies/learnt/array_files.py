"""Files of arrays (.npz), read so that nothing in them is taken on trust: compiled code looks at no bounds."""

import zipfile
from collections.abc import Collection, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.system.bounded_files import MIB, read_bytes, size_text
from elastic_ps.system.whole_files import write_whole

MOST_BYTES = 256 * MIB
"""Of a file, and of all arrays in it: those of the paper's network with 256 jobs have less."""

MOST_MODELS = 10_000
"""Types that a network knows."""

_MOST_WEIGHT = 1e9
"""What is learnt stays below ten; speeds, in samples a second, are well below it, too."""

Shape = tuple[int, ...]


def read_arrays(path: Path, most: int = MOST_BYTES) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name.

    Args:
        path: of the file.
        most: bytes of the file, and of all arrays in it.

    Raises:
        ValueError, zipfile.BadZipFile: it is damaged, holds objects instead of numbers, or more than `most` bytes.
        OSError: it cannot be read.
    """
    with zipfile.ZipFile(BytesIO(read_bytes(path, most))) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > most:
            raise ValueError(f"its arrays have more than {size_text(most)}")
        found = {}
        for entry in archive.infolist():
            with archive.open(entry) as file:
                found[entry.filename.removesuffix(".npy")] = _array(file, entry.file_size)
        return found


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into a file by name, whole or not at all.

    Args:
        path: of the file, which is made or replaced.
        arrays: by name.

    Raises:
        OSError: it cannot be written; it names the file.
    """
    whole = BytesIO()  # of a file that cannot be written to its end, the archive would complain once more
    np.savez(whole, **arrays)
    write_whole(path, whole.getbuffer(), path.with_suffix(".partial.npz"))


def _array(file: IO[bytes], size: int) -> NDArray[Any]:
    """Return one array, whose header does not promise more than there is.

    Args:
        file: of it.
        size: bytes.
    """
    version = npy.read_magic(file)  # type: ignore[no-untyped-call]
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of version {version}")
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_column, kind = header(file)  # type: ignore[no-untyped-call]
    if kind.hasobject or kind.kind not in "bifuU" or by_column:
        raise ValueError(f"an array of {kind}{', by columns' if by_column else ''}")
    count = 1
    for length in shape:  # whole numbers of Python's, which do not overflow
        count *= length
    if any(length < 0 for length in shape) or not 0 <= count * kind.itemsize <= size:
        raise ValueError(f"an array of shape {shape} in {size} bytes")
    data = file.read(count * kind.itemsize)
    return np.frombuffer(data, dtype=kind, count=count).reshape(shape).copy()


def length_of(found: Mapping[str, Shape], name: str) -> int:
    """Return the length of a bias; at least 1, which an empty one has not.

    Args:
        found: shapes of a file's arrays.
        name: of the bias.
    """
    shape = found.get(name, ())
    return max(shape[0], 1) if len(shape) == 1 else 1


def check_arrays(found: Mapping[str, NDArray[Any]], wanted: Mapping[str, Shape]) -> None:
    """Refuse arrays that are not what a network of these shapes has.

    Args:
        found: by name.
        wanted: shapes by name; of numbers of single precision all.

    Raises:
        BadInput: one is missing, has another shape or kind, or a number that is not finite, or too large.
    """
    for name, shape in wanted.items():
        if name not in found:
            raise BadInput(f"it has no {name}")
        array = found[name]
        if array.shape != shape:
            raise BadInput(f"{name} has the shape {array.shape} instead of {shape}")
        if array.dtype != np.float32:
            raise BadInput(f"{name} is of {array.dtype} instead of float32")
    not_finite = [name for name in wanted if not np.isfinite(found[name]).all()]
    if not_finite:
        raise BadInput(f"weights are not finite ({', '.join(not_finite)}): learning went wrong; use an earlier run")
    too_large = [name for name in wanted if (np.abs(found[name]) > _MOST_WEIGHT).any()]
    if too_large:
        raise BadInput(
            f"weights are above {_MOST_WEIGHT:g} ({', '.join(too_large)}): learning went wrong; use an earlier run"
        )


def check_models(models: object, most: int) -> tuple[str, ...]:
    """Return names of types, which are texts, each once.

    Args:
        models: as a file has them.
        most: of them.

    Raises:
        BadInput: they are not.
    """
    names = tuple(models) if isinstance(models, Collection) and not isinstance(models, str | bytes | Mapping) else ()
    if not (0 < len(names) <= most and all(isinstance(name, str) and name for name in names)):
        raise BadInput(f"models is {str(models)[:40]!r}: give 1 to {most:,} names of types")
    if len(set(names)) < len(names):
        raise BadInput("models has a name twice")
    return names
