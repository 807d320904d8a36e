"""Measure for how long nobody trains as a worker joins and leaves, by ours and by what else trains elastically.

    python -m benchmarks.joins [--models resnet50] [--rounds 3]

A job of PyTorch with one worker gets a second one, and loses it, all on this machine, with models of the shapes of
ResNet-50 (102 MB) or VGG-16 (553 MB) and an emulated device whose backward pass takes 160 ms. Beside ours, with one
server and without servers: torchrun, which starts all workers again, from a checkpoint of every 20th step; and torchft,
if it is installed, whose replica that joins takes the state from another. torchrun is told to wait one second for
further workers, where it would wait 30.
"""

import argparse
import shutil
from importlib.util import find_spec

from benchmarks.support.growing import growing
from benchmarks.support.models import MODELS
from benchmarks.support.report import FOLDER as RESULTS
from benchmarks.support.report import as_program, finish

FOLDER = RESULTS / "joins"


def main() -> int:
    """Measure, print, write build/bench/joins.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["resnet50"])
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each system (default 3)")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    rows = [row for model in arguments.models for row in growing(FOLDER, model, arguments.rounds)]
    return finish("joins", rows, [], ("torch", *(("torchft",) if find_spec("torchft") else ())))


if __name__ == "__main__":
    as_program(main)
