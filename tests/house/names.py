"""The rule of names: no two public classes of the product have the same one, where they mean different things."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.house.sources import Source

SAME = {
    "AdamW": "an optimizer, as the adapter offers it and as the servers run it",
    "MigrationMode": "how blocks move, as the launcher's option says it and the coordinator decides it",
    "Sampler": "the elastic data order, as any script iterates over it and as one of PyTorch does",
}
"""Names that stand twice and mean the same, and what."""


def duplicates(sources: Iterable[Source]) -> Iterator[str]:
    """Yield each public class name that stands more than once, with its places."""
    places = defaultdict[str, list[str]](list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{source.path}:{node.lineno}")
    for name, found in sorted(places.items()):
        if len(found) > 1 and name not in SAME:
            yield f"class {name} stands {len(found)} times: {', '.join(found)}"
