"""An installation without extras brings what a job's programs import; each extra is told by its packages."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest

from elastic_ps.system.extras import _EXTRAS
from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PARTS = ("elastic_ps", "coordinator", "dl2_scheduler", "k8s", "examples")
MAY_BE_THERE = {"grpcio-tools", "setuptools"}
"""What grpc imports where it finds it, and what puts a folder in place that is edited."""

IMPORTS = "import importlib, json, sys; importlib.import_module(sys.argv[1]); print(json.dumps([*sys.modules]))"


def distribution(requirement: str) -> str:
    """A requirement's distribution, by its normal name."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def brought_by(requirements: list[str]) -> set[str]:
    """All distributions that are installed with these."""
    found: set[str] = {"elastic-ps"}
    wanted = [distribution(each) for each in requirements]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # of another platform
            continue
        wanted += [distribution(each) for each in needed if "extra ==" not in each]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["coordinator.__main__", "coordinator.ctl.cli", "elastic_ps.launch.__main__", "elastic_ps.server.__main__"],
)
def test_a_program_of_a_job_needs_no_extra(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS, program], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in json.loads(done.stdout)}
    brought = brought_by(PROJECT["dependencies"]) | MAY_BE_THERE
    owners = packages_distributions()
    names = {top: {distribution(each) for each in owners.get(top, [])} for top in tops}
    assert not [top for top, found in names.items() if found and not found & brought]


def test_each_extra_that_is_told_brings_the_package() -> None:
    owners = packages_distributions()
    for extra, packages in _EXTRAS.items():
        brought = brought_by(PROJECT["optional-dependencies"][extra])
        for package in packages:
            assert not owners.get(package) or {distribution(each) for each in owners[package]} & brought, package


def test_nobody_is_told_to_install_by_a_name_that_we_do_not_have() -> None:
    """PyPI has no elastic-ps, and a stranger could register it."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    sources = [file for part in PARTS for file in (ROOT / part).rglob("*.py")]
    assert not [file for file in [*pages, *sources] if re.search(r"pip install \S*elastic.ps\b", file.read_text())]
