"""The pages of the docs, and the command lines on them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"`([^`\n]+)`")
PLACEHOLDER = re.compile(r"[A-Z]+(_[A-Z]+)*")


class ShownCommand(NamedTuple):
    """A command line on a page.

    Attributes:
        program: its first word.
        words: those after it, without what it is piped to.
        whole: it stands on a line of its own, to be typed; else it is named in a sentence, and may lack arguments.
        pattern: some of it stands for what a reader puts there: FILE, [--json], `...`.
    """

    program: str
    words: list[str]
    whole: bool
    pattern: bool

    def __str__(self) -> str:
        return shlex.join([self.program, *self.words])


def inline(page: Path) -> list[str]:
    """Code in the sentences of a page."""
    return CODE.findall(page.read_text())


def lines(page: Path) -> list[str]:
    """Lines of a page that are code, indented or fenced; one that ends with a backslash has the next in it."""
    text = page.read_text()
    indented = [line for line in text.splitlines() if line.startswith("    ")]
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    listed = "\n".join([*indented, *(line for block in fenced for line in block.splitlines())])
    return listed.replace("\\\n", " ").splitlines()


def commands(page: Path, program: str) -> Iterator[ShownCommand]:
    """Command lines of a program on a page, those behind `kubectl exec POD --` among them."""
    for whole, texts in ((False, inline(page)), (True, lines(page))):
        for text in texts:
            yield from (found for found in _read(text, whole) if found.program == program)


def _read(text: str, whole: bool) -> Iterator[ShownCommand]:
    line = re.split(r"\s#\s|\s\|\s|\s2?>\s?|\s&$", text.strip().removeprefix("$ "))[0]
    line = re.sub(r"^([A-Z_]+=\S+ +)+", "", line)  # variables of its environment
    if line.startswith("["):
        return  # what a program prints
    try:
        found = shlex.split(re.sub(r"\[\S*\](?=\S)|[\[\]]", " ", line))
    except ValueError:  # prose with an apostrophe
        found = line.split()
    if len(found) < 2:
        return
    pattern = "[" in line or any(PLACEHOLDER.fullmatch(word) or "..." in word or "|" in word for word in found)
    program, *rest = found
    yield ShownCommand(Path(program).name, rest, whole, pattern)
    if program == "kubectl" and "--" in rest:
        inside = rest[rest.index("--") + 1 :]
        yield ShownCommand(inside[0], inside[1:], whole, pattern)
