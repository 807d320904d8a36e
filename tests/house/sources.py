"""The sources that the rules are about, parsed once."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

FOLDERS = ("elastic_ps", "coordinator", "dl2_scheduler", "k8s", "benchmarks", "examples", "docs")


@dataclass(frozen=True)
class Source:
    """A source is one file of the product and its syntax tree.

    Attributes:
        path: relative to the project.
        tree: of its text.
        lines: how many it has.
    """

    path: Path
    tree: ast.Module
    lines: int


def sources(under: Collection[str] = FOLDERS) -> Iterator[Source]:
    """Yield every source of some folders or files, generated ones left out."""
    for name in under:
        root = ROOT / name
        for path in sorted([root] if root.is_file() else root.rglob("*.py")):
            if "_pb2" not in path.name:
                text = path.read_text()
                yield Source(path.relative_to(ROOT), ast.parse(text), text.count("\n"))
