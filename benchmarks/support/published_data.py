"""This module gives benchmarks the folder of the published sequences and speeds, which are not part of the project."""

import argparse
import os
from pathlib import Path

DATA = Path(os.environ.get("DL2_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))


def data_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser that has `--data`.

    Args:
        about: the benchmark, for --help.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the published sequences and speeds")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options, once the published data are there; end the program where they are not."""
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"no folder {arguments.data}: give --data, or set DL2_SHARED_DATA")
    return arguments
