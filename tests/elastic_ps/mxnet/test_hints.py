"""The adapter says how a script of MXNet does what the core's errors ask for."""

import pytest

import elastic_ps.mxnet  # noqa: F401  # gives the hints
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_hints import PHRASES

pytestmark = pytest.mark.mxnet


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_phrase_has_a_hint(phrase):
    assert ". In MXNet: " in str(ConfigurationError(f"this needs {phrase}"))
