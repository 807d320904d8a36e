"""The second run of `make test` finds every test that asks for it."""

import re

from tests.conftest import NUMERIC
from tests.paths import ROOT

NAMED = re.search(r"^OF_MXNET = (.*\\\n.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def folders():
    """Return the paths that the Makefile names, as make reads them."""
    assert NAMED
    plain, within = NAMED[1].replace("\\\n", " ").split("$(addprefix tests/elastic_ps/,")
    return [ROOT / path for path in plain.split()] + [
        ROOT / "tests/elastic_ps" / path for path in within.rstrip(") ").split()
    ]


def test_all_that_is_named_exists():
    assert len(folders()) == 10
    assert all(path.exists() for path in folders())


def test_no_test_of_mxnet_or_numpy_lies_elsewhere():
    every = (ROOT / "tests").rglob("test_*.py")
    marked = [path for path in every if re.search(r"mark\.(mxnet|numeric)\b", path.read_text())]
    assert len(marked) > 20
    for path in [*marked, *map(ROOT.joinpath, NUMERIC)]:
        assert any(path.is_relative_to(folder) for folder in folders()), path
