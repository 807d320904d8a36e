"""This module reads the text of a document: YAML that can be read in one way only.

It holds nothing that could not be given to a program.
"""

from typing import Any

import yaml

from dl2_scheduler.cluster.errors import BadInput

LONGEST = 1 << 20
"""Characters; Kubernetes takes little more."""

_MOST_VALUES = 100_000
_DEEPEST = 50
_TAG = "tag:yaml.org,2002:"
_NOT_OF_JSON = tuple(_TAG + kind for kind in ("binary", "omap", "pairs", "set", "timestamp"))


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """A `_Loader` takes a date for text, as kubectl does: JSON has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [kind for kind in kinds if kind[0] != _TAG + "timestamp"]
    for first, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str) -> Any:
    """Return what a text says.

    Args:
        text: YAML, or JSON, which is YAML too.

    Raises:
        BadInput: it is neither, too large, names a field twice, or has characters that no program can be given; with
            the line.
    """
    if len(text) > LONGEST:
        raise BadInput(f"longer than {LONGEST:,} characters: leave something out")
    try:
        loader = _Loader(text)
        loader.name = "the document"
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _measure(node, {}, 0)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise BadInput(f"not YAML: {error}") from error
    except (ValueError, OverflowError) as error:  # PyYAML leaves those of numbers as they are
        raise BadInput(f"not YAML: a number cannot be read: {error}: put it in quotes, where it is text") from error
    except RecursionError:
        raise BadInput(f"more than {_DEEPEST} levels deep: leave something out") from None


def _measure(node: yaml.Node, known: dict[int, tuple[int, int]], level: int) -> tuple[int, int]:
    """Return how many values a node stands for, and how deep it is, with all that it has by aliases.

    Args:
        node: the node of the text.
        known: those measured before, by their ids.
        level: the level of the node.
    """
    values, depth = known.get(id(node)) or (0, 0)
    if level + depth > _DEEPEST:  # an alias of what it is in is endlessly deep
        raise BadInput(f"{_where(node)}: more than {_DEEPEST} levels deep: leave something out")
    if values:
        return values, depth
    _check(node)
    below = [_measure(each, known, level + 1) for each in _below(node)]
    values, depth = 1 + sum(each[0] for each in below), max((each[1] + 1 for each in below), default=0)
    if values > _MOST_VALUES:
        raise BadInput(f"{_where(node)}: more than {_MOST_VALUES:,} values: leave something out")
    known[id(node)] = values, depth
    return values, depth


def _below(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check(node: yaml.Node) -> None:
    if node.tag in _NOT_OF_JSON:
        raise BadInput(f"{_where(node)}: !!{node.tag.removeprefix(_TAG)}, which JSON has not: give text or a list")
    if isinstance(node, yaml.MappingNode):
        keys: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in keys:
                raise BadInput(f"{_where(key)}: {key.value} is there twice: leave one out")
            keys.add((key.tag, key.value))
    elif isinstance(node, yaml.ScalarNode):
        if "\0" in node.value:
            raise BadInput(f"{_where(node)}: text with \\0, which no program can be given: leave it out")
        if not _is_unicode(node.value):
            raise BadInput(f"{_where(node)}: text with half a character, as \\ud83d is: write the character itself")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _where(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"
