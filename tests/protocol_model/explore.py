"""Compile the checker, and run it on a scope."""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

SOURCES = sorted(Path(__file__).with_name("checker").glob("*"))


@dataclass(frozen=True)
class Outcome:
    """What came of one exploration.

    Attributes:
        verdict: HOLDS, REFUTED or UNFINISHED (more states than it was let).
        states: how many different states were met.
        seconds: how long it took.
        broken: the invariant that a state breaks; empty where it holds.
        actions: length of the shortest trace to that state.
        text: all that the checker printed, the trace among it.
    """

    verdict: str
    states: int
    seconds: float
    broken: str
    actions: int
    text: str


def build() -> Path:
    """Compile the checker if its sources have changed; return the program."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:12]
    program = ROOT / "build" / f"protocol_model-{digest}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        made = program.with_suffix(f".{os.getpid()}")
        units = [str(source) for source in SOURCES if source.suffix == ".cpp"]
        subprocess.run(["g++", "-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", str(made), *units], check=True)
        made.replace(program)
    return program


def explore(options: str) -> Outcome:
    """Explore all states of the scope that `options` describe, as the README lists them."""
    done = subprocess.run([str(build()), *options.split()], capture_output=True, text=True, check=False)
    head = re.match(
        r"(HOLDS|REFUTED|UNFINISHED) states (\d+) ends \d+ depth \d+ seconds ([\d.]+)\n(?:(.*), after (\d+) actions:)?",
        done.stdout,
    )
    if not head:
        raise RuntimeError(f"the checker refused {options!r}: {done.stdout}{done.stderr}")
    return Outcome(head[1], int(head[2]), float(head[3]), head[4] or "", int(head[5] or 0), done.stdout)
