"""The lower bounds of pyproject.toml are enough for the generated code, which refuses older packages when imported."""

import re
import tomllib

from tests.paths import ROOT

ASKED = {"protobuf": r"# Protobuf Python Version: ([\d.]+)", "grpcio": r"GRPC_GENERATED_VERSION = '([\d.]+)'"}


def numbers(version):
    return tuple(map(int, version.split(".")))


def test_generated_code_runs_with_the_oldest_packages_that_are_allowed():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", each).groups() for each in dependencies)
    generated = "\n".join(path.read_text() for path in (ROOT / "protos").glob("*_pb2*.py"))
    for package, pattern in ASKED.items():
        asked = [numbers(found) for found in re.findall(pattern, generated)]
        assert asked, package
        assert numbers(bounds[package]) >= max(asked), package
