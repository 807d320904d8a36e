"""This module reads from the code what each folder is for, which modules it has, and which folder imports which."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PROGRAMS = ("elastic_ps", "coordinator", "dl2_scheduler", "k8s")
DRAWN = ("elastic_ps", "coordinator")
"""Programs of which the picture shows each folder; others are one box."""


def packages() -> Iterator[str]:
    """Yield the dotted names of all packages, parents first."""
    for program in PROGRAMS:
        for path in sorted((ROOT / program).rglob("__init__.py")):
            yield ".".join(path.parent.relative_to(ROOT).parts)


def purpose(package: str) -> str:
    """Return the first line of a package's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())) or ""
    return text.partition("\n")[0]


def modules(package: str) -> list[str]:
    """Return the names of a package's modules, in order."""
    folder = ROOT / package.replace(".", "/")
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("__"))


def table() -> str:
    """Return the table of all packages in Markdown."""
    rows = []
    for package in packages():
        names = ", ".join(f"`{name}`" for name in modules(package))
        rows.append(f"| `{package.replace('.', '/')}/` | {purpose(package)} | {names} |")
    return "\n".join(["| folder | what it is for | modules |", "|---|---|---|", *rows])


def imports() -> list[tuple[str, str]]:
    """Return (folder, folder that it imports) for all folders that the picture shows."""
    graph = grimp.build_graph(*PROGRAMS, "protos")
    shown = [name for name in packages() if name.count(".") == 1 and name.partition(".")[0] in DRAWN]
    shown += [program for program in (*PROGRAMS, "protos") if program not in DRAWN]
    return [
        (importer, imported)
        for importer in shown
        for imported in shown
        if importer != imported and graph.direct_import_exists(importer=importer, imported=imported, as_packages=True)
    ]


def reduced(edges: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the edges of a graph without circles, less those that follow from others."""
    return sorted(edge for edge in edges if not _follows(edge, edges))


def _follows(edge: tuple[str, str], edges: Collection[tuple[str, str]]) -> bool:
    """Return whether other edges lead from an edge's start to its end."""
    reached, ahead = set[str](), [target for source, target in edges if source == edge[0] and target != edge[1]]
    while ahead:
        folder = ahead.pop()
        if folder == edge[1]:
            return True
        if folder not in reached:
            reached.add(folder)
            ahead += [target for source, target in edges if source == folder]
    return False


def picture() -> str:
    """Return who imports whom as a Mermaid flowchart; an arrow leads from a folder to one that it imports."""
    arrows = [f"    {source} --> {target}" for source, target in reduced(imports())]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])


def section() -> str:
    """Return the picture and the table."""
    return f"{picture()}\n\n{table()}"
