"""A rule of one's own that was written for an earlier release runs: its base class is found where it was."""

import sys
from pathlib import Path

import pytest

from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.optimizers import make_rule
from elastic_ps.system.module_files import module_file

RULES = """
import elastic_ps.server.optimizers

class Mine(elastic_ps.server.optimizers.Rule):
    def states(self, dtype):
        return ()

    def update(self, value, gradient, states, count, hyper):
        value -= gradient
"""


def test_a_rule_of_an_earlier_release_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "earlier_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "earlier_rules", raising=False)
    assert (
        make_rule(OptimizerSpec("earlier_rules:Mine"), {"earlier_rules": module_file("earlier_rules")}).states("f4")
        == ()
    )
