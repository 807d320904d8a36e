"""Measure whether training converges with gradients that tcp compresses, on the digits job.

    python -m benchmarks.compression [--epochs 20]

How many bytes each leaves is arithmetic (docs/reference/mxnet.md, "Compression").
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.support.report import as_program, at_least, finish
from dl2_scheduler.cluster.errors import TrialFailed

FOLDER = Path("build/bench/compression")
_LEAST = 0.97  # what the digits job reaches without
_SETTINGS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "float16": {"type": "float16"},
    "bfloat16": {"type": "bfloat16"},
    "2bit": {"type": "2bit", "threshold": 8},  # gradients are sums over a worker's 32 samples
    "topk": {"type": "topk", "ratio": 0.05},
}


def train(name: str, compression: dict[str, Any] | None, epochs: int) -> tuple[float, float]:
    """Return the test accuracy, and the seconds that the job took.

    Args:
        name: of what is measured.
        compression: as `Trainer` takes it; None: without.
        epochs: to train.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    out = FOLDER.resolve() / f"{name}.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "elastic_ps.launch", "--workers", "2", "--servers", "1", "--transport", "tcp"]
    script = ["examples/digits.py", "--epochs", str(epochs), "--out", str(out)]
    options = ["--compression", json.dumps(compression)] if compression else []
    started = time.monotonic()
    with (FOLDER / f"{name}.log").open("wb") as log:
        environment = {**os.environ, "XDG_STATE_HOME": str(FOLDER.resolve() / name)}
        subprocess.run(
            [*command, *script, *options], env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if not out.exists():
        raise TrialFailed(f"the job with compression {name} has no result: see {log.name}")
    return float(json.loads(out.read_text())["test_accuracy"]), time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    rows, goals = [], []
    for name, compression in _SETTINGS.items():
        print(f"compression: {name}", file=sys.stderr, flush=True)
        accuracy, seconds = train(name, compression, arguments.epochs)
        rows.append({"compression": json.dumps(compression), "test accuracy": accuracy, "s": seconds})
        goals.append(at_least(f"{name}: test accuracy", _LEAST, accuracy, "of 1"))
    return finish("compression", rows, goals, ("numpy", "mxnet"))


if __name__ == "__main__":
    as_program(main)
