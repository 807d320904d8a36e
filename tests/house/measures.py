"""The measures of the house: how large files, functions and folders are."""

import ast
import statistics
from collections import Counter
from collections.abc import Sequence

from tests.house.docstrings import Function
from tests.house.sources import Source


def measures(sources: Sequence[Source]) -> dict[str, object]:
    """Return the measures of some sources by what they say."""
    lengths = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, Function)
    )
    folders = Counter(str(source.path.parent) for source in sources if source.path.name != "__init__.py")
    fullest, modules = folders.most_common(1)[0]
    return {
        "files": len(sources),
        "lines": sum(source.lines for source in sources),
        "files over 350 lines": sum(source.lines > 350 for source in sources),
        "functions": len(lengths),
        "lines of a function (median, p90, max)": (
            statistics.median(lengths),
            lengths[int(0.9 * len(lengths))],
            lengths[-1],
        ),
        "functions over 40 lines": sum(length > 40 for length in lengths),
        "modules of the fullest folder": f"{modules} ({fullest})",
        "folders of more than 16 modules": sum(count > 16 for count in folders.values()),
    }
