"""The house's rules see what breaks them."""

import ast
from pathlib import Path

import pytest

from tests.house.docstrings import complaints, is_imperative, is_sentence
from tests.house.names import duplicates
from tests.house.sources import Source


def source(text: str, name: str = "a.py") -> Source:
    return Source(Path(name), ast.parse(text), text.count("\n"))


@pytest.mark.parametrize("text", ["Return the next run of blocks.", "Keep a value.", "See `Handler`."])
def test_imperatives(text: str) -> None:
    assert is_imperative(text)


@pytest.mark.parametrize("text", ["That jobs measured.", "Of a pod of it that is not there.", "The state of a job."])
def test_no_imperatives(text: str) -> None:
    assert not is_imperative(text)


@pytest.mark.parametrize("text", ["A lease says who leads.", "This module decides.", "Plans change it.", "It is one."])
def test_sentences(text: str) -> None:
    assert is_sentence(text)


@pytest.mark.parametrize("text", ["The parameter server.", "A point in the data: `step` of an epoch.", "Jobs by name."])
def test_no_sentences(text: str) -> None:
    assert not is_sentence(text)


def test_what_breaks_the_rules_of_docstrings_is_said_with_its_place():
    found = list(
        complaints(
            source(
                '"""Things"""\n'
                "class A:\n"
                '    """A thing."""\n'
                "    def f(self, a, b, c):\n"
                '        """The sum of three."""\n'
                "    @property\n"
                "    def g(self):\n"
                '        """The sum."""\n'
                "def h(a, b, c):\n"
                '    """Return the sum.\n\n    Args:\n        a: one.\n        b: one.\n        c: one.\n    """\n'
            )
        )
    )
    assert [each.split(": ")[0] for each in found] == [
        "a.py:1 module",
        "a.py:1 module",
        "a.py:2 A",
        "a.py:4 f",
        "a.py:4 f",
    ]


@pytest.mark.parametrize("line", ["Of one cluster.", "How tensors travel.", "Whether it is.", "That is.", "What is."])
@pytest.mark.parametrize("head", ["", "class A:\n    ", "class A:\n    @property\n    def f(self):\n        "])
def test_a_clause_is_no_sentence(head: str, line: str) -> None:
    found = list(complaints(source(f'{head}"""{line}"""\n')))
    assert any(f"begins with {line.split()[0]!r}" in each for each in found)


def test_a_command_says_its_options_in_its_help():
    text = '@app.command()\ndef scale(job, workers, servers):\n    """Change the counts of a job."""\n'
    assert list(complaints(source('"""Keep commands."""\n' + text))) == []


def test_a_name_that_stands_twice_is_said():
    twice = [source("class Thing: ...\nclass _Own: ..."), source("class Thing: ...\nclass _Own: ...", "b.py")]
    assert list(duplicates(twice)) == ["class Thing stands 2 times: a.py:1, b.py:1"]
