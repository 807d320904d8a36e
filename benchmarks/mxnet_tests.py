"""MXNet's own tests of kvstores and of Trainer, with our store in place of theirs.

    python -m benchmarks.mxnet_tests --mxnet PATH

PATH is a checkout of Apache MXNet, version 1.9.1; nothing of it is copied. Each test of tests/python/unittest runs as a
job of one worker and one server, each part of tests/nightly/dist_*_kvstore.py as one of two workers and two servers,
whose script is `scripts.mxnet_tests_script`. docs/reference/mxnet.md says which expectations are not met, and why:
those tests are listed here as `_UNMET`, and the command fails where the list is not what it finds.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.report import as_program

FOLDER = Path("build/benchmarks/mxnet_tests")
_UNIT = ("test_kvstore.py", "test_kvstore_custom.py", "test_gluon_trainer.py")
_SYNC_PARTS = (
    "default_cpu",
    "compressed_cpu",
    "invalid_cpu",
    "gluon_type_cpu",
    "gluon_step_cpu",
    "gluon_sparse_step_cpu",
)
_SECONDS = 1800.0  # the compressed ones compute what they expect element by element, in Python

_UNMET = frozenset(
    {
        "test_kvstore:test_updater",
        "test_kvstore:test_get_type",
        "test_gluon_trainer:test_trainer_with_sparse_grad_on_single_context",
        "test_gluon_trainer:test_trainer",
        "test_gluon_trainer:test_trainer_reset_kv",
        "test_gluon_trainer:test_trainer_sparse_kv",
        "test_gluon_trainer:test_trainer_lr_sched",
    }
)
"""Tests that fail with our store, as docs/reference/mxnet.md explains."""


@dataclass(frozen=True)
class Case:
    """This case is run as one job: a test function of a file, or a file with arguments."""

    file: Path
    test: str = ""
    arguments: tuple[str, ...] = ()
    nodes: int = 1

    @property
    def name(self) -> str:
        """Return the case's name in the report and in `_UNMET`."""
        return f"{self.file.stem}:{self.test}" if self.test else " ".join([self.file.stem, *self.arguments])


def cases(mxnet: Path) -> Iterator[Case]:
    """Yield all tests, in the order of the files."""
    for name in _UNIT:
        file = mxnet / "tests/python/unittest" / name
        for test in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE):
            yield Case(file, test)
    nightly = mxnet / "tests/nightly"
    for part in _SYNC_PARTS:
        yield Case(nightly / "dist_sync_kvstore.py", arguments=("--type", part), nodes=2)
        if part in ("default_cpu", "compressed_cpu"):
            yield Case(nightly / "dist_sync_kvstore.py", arguments=("--type", part, "--no-multiprecision"), nodes=2)
    yield Case(nightly / "dist_sync_kvstore.py", arguments=("--type", "init_gpu", "--no-gpu"), nodes=2)
    yield Case(nightly / "dist_async_kvstore.py", nodes=2)


def passes(case: Case, log: Path) -> bool:
    """Run a case as a job; its output goes to `log`."""
    counts = ["--workers", str(case.nodes), "--servers", str(case.nodes), "--max-restarts", "0"]
    script = [
        "-m",
        "benchmarks.scripts.mxnet_tests_script",
        str(case.file.resolve()),
        case.test or "-",
        *case.arguments,
    ]
    state = {"XDG_STATE_HOME": str(FOLDER.resolve() / "state")}
    with log.open("wb") as output, suppress(subprocess.TimeoutExpired):
        job = subprocess.run(
            [sys.executable, "-m", "elastic_ps.launch", *counts, "--name", f"mxnet-tests-{os.getpid()}", *script],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **state},
            timeout=_SECONDS,
            check=False,
        )
        return job.returncode == 0
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", type=Path, required=True, metavar="PATH", help="a checkout of Apache MXNet 1.9.1")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this")
    arguments = parser.parse_args()
    if not (arguments.mxnet / "tests/python/unittest" / _UNIT[0]).is_file():
        parser.error(
            f"--mxnet {arguments.mxnet}: no tests/python/unittest/{_UNIT[0]} there; give a checkout of "
            "Apache MXNet's repository at the tag 1.9.1"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for case in cases(arguments.mxnet):
        if arguments.only not in case.name:
            continue
        log = FOLDER / f"{re.sub(r'[^a-z0-9_]+', '-', case.name)}.log"
        passed, expected = passes(case, log), case.name not in _UNMET
        wrong += passed != expected
        found = "passes" if passed else "fails"
        print(f"{found:7} {case.name}{'' if passed == expected else f'  (not as listed: see {log})'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    as_program(main)
