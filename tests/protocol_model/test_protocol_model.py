"""tests/protocol_model: the protocol holds in small scopes, and is refuted without any of its rules."""

import pytest

from tests.protocol_model.explore import explore
from tests.protocol_model.scopes import NEEDED, SMALL


@pytest.mark.slow
@pytest.mark.parametrize("scope", SMALL)
def test_the_protocol_holds(scope):
    outcome = explore(scope)
    assert outcome.verdict == "HOLDS", outcome.text


@pytest.mark.slow
@pytest.mark.parametrize("rules", NEEDED)
def test_it_is_refuted_without_a_rule(rules):
    outcome = explore(f"{NEEDED[rules]} without={rules}")
    assert outcome.verdict == "REFUTED"
    assert outcome.broken
    assert f"\n{outcome.actions:3d} " in outcome.text, "the trace has as many lines as it says"


@pytest.mark.slow
def test_an_unknown_option_is_refused():
    with pytest.raises(RuntimeError, match="no such rule: nonsense"):
        explore("without=nonsense")
