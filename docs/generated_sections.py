"""Write into the docs what the code says, between two markers; `--check` fails where what is committed is stale.

    <!-- from code: NAME (`make docs`) -->
    ...
    <!-- end of NAME -->

Only text that stands in git anyway is written, so that a forge renders it; tests/docs keeps it fresh.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from coordinator.core.plans.transitions import TRANSITIONS, Transition
from docs import folders

HERE = Path(__file__).parent


def diagram(transitions: Sequence[Transition]) -> str:
    """Return the phases of a plan as a Mermaid state diagram. A plan begins where the first row does."""
    sources = {row.source for row in transitions}
    ends = sorted({row.target for row in transitions} - sources)
    arrows = [f"    {row.source} --> {row.target}: {row.trigger}" for row in transitions]
    return "\n".join(
        [
            "```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {transitions[0].source}",
            *arrows,
            *(f"    {phase} --> [*]" for phase in ends),
            "```",
        ]
    )


def table(transitions: Sequence[Transition]) -> str:
    """Return the table of what each arrow means; arrows that differ only in where they start share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for row in transitions:
        rows.setdefault((row.trigger, row.target, row.when), []).append(row.source)
    lines = [
        f"| {trigger} | {', '.join(sources)} | {target} | {when} |" for (trigger, target, when), sources in rows.items()
    ]
    return "\n".join(["| arrow | from | to | when |", "|---|---|---|---|", *lines])


def phases() -> str:
    """Return the picture and the legend of the coordinator's transition table."""
    return f"{diagram(TRANSITIONS)}\n\n{table(TRANSITIONS)}"


SECTIONS: dict[tuple[str, str], Callable[[], str]] = {
    ("reference/protocol.md", "phases"): phases,
    ("concepts/architecture.md", "folders"): folders.section,
}
"""(page, name) -> what stands there."""


def insert(text: str, name: str, content: str) -> str:
    """Return `text` with `content` between the markers of `name`.

    Args:
        text: of a page.
        name: of a section.
        content: what is to stand there.

    Raises:
        ValueError: the markers do not stand there exactly once, each on a line of its own and in order.
    """
    first, last = f"<!-- from code: {name} (`make docs`) -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = text.partition(first)
    _, closed, after = rest.partition(last)
    if not (found and closed) or text.count(first) > 1 or text.count(last) > 1:
        raise ValueError(f"exactly one section {first.strip()} ... {last.strip()} is needed")
    return f"{before}{first}\n{content}\n\n{last}{after}"


def pages(folder: Path = HERE) -> dict[Path, str]:
    """Return the pages of `folder` as they must be."""
    fresh: dict[Path, str] = {}
    for (page, name), content in SECTIONS.items():
        path = folder / page
        try:
            fresh[path] = insert(fresh.get(path) or path.read_text(), name, content())
        except ValueError as error:
            raise SystemExit(f"docs/{page}: {error}") from error
    return fresh


def main(arguments: Sequence[str], folder: Path = HERE) -> None:
    """Rewrite the pages, or with `--check` compare."""
    for path, text in pages(folder).items():
        if path.read_text() == text:
            continue
        if "--check" in arguments:
            raise SystemExit(f"docs/{path.relative_to(folder)} is stale: run `make docs` and commit the result")
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
