"""Commands that ask a cluster do not wait for what simulating and learning need."""

import json
import re
import subprocess
import sys

import pytest

HEAVY = {"kubernetes", "matplotlib", "numba", "numpy", "scipy", "torch"}
LOOK = """
import json, sys
from typer.testing import CliRunner
from dl2_scheduler.cli import app
result = CliRunner().invoke(app, sys.argv[1:])
print(json.dumps([result.exit_code, result.output, sorted(sys.modules)]))
"""


def asked(*words: str) -> tuple[int, str, set[str]]:
    """What a command answers, and what it has imported, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True, check=True)
    status, output, modules = json.loads(done.stdout)
    return status, output, set(modules)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *("jobs", "status a", "why a", "top", "logs a", "hold a", "release a", "scale a --workers 1", "stop a"),
        *("policy", "policy use drf", "policy end-shadow"),
    ],
)
def test_a_command_that_asks_a_cluster_is_light(words: str, tmp_path) -> None:
    status, output, modules = asked(*words.split(), "--folder", str(tmp_path))
    assert (status, "dl2 serve" in output) == (1, True), output  # it came so far as to ask
    assert not HEAVY & modules


@pytest.mark.slow
def test_submit_is_light(tmp_path) -> None:
    document = tmp_path / "a.yaml"
    document.write_text("kind: Nothing")
    status, output, modules = asked("submit", str(document), "--folder", str(tmp_path))
    assert (status, str(document) in output) == (2, True), output
    assert not HEAVY & modules


@pytest.mark.slow
def test_a_command_that_simulates_is_not() -> None:
    assert asked("simulate", "--help")[2] >= {"numba", "numpy", "scipy"}


@pytest.mark.slow
def test_the_help_lists_every_command_in_its_order() -> None:
    status, output, modules = asked("--help")
    listed = [line for line in output.partition("Commands:")[2].splitlines() if re.match(r"  \w", line)]
    assert status == 0
    assert " ".join(line.split()[0] for line in listed) == (
        "simulate evaluate bootstrap figure fit learn learn-chic learn-agents learn-placement serve submit jobs status "
        "why top what-if logs hold release scale stop trace policy"
    )
    assert "torch" not in modules


@pytest.mark.slow
def test_a_command_that_is_not_there_is_told_without_loading_any() -> None:
    status, output, modules = asked("job")
    assert (status, "Did you mean 'jobs'?" in output) == (2, True)
    assert not HEAVY & modules
