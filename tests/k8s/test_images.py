"""The Dockerfiles name what is there: no image is built by the tests."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import PurePosixPath

import pytest
import yaml

from tests.paths import ROOT

IMAGES = sorted((ROOT / "k8s" / "images").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RULES = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


@pytest.fixture(params=IMAGES, ids=lambda path: path.name)
def dockerfile(request):
    """Its instructions, lines that go on joined."""
    return request.param.read_text().replace("\\\n", " ")


def sent(path):
    """Whether the builder gets this file of the repository: the last rule that matches it or a folder above it says."""
    places = [path, *PurePosixPath(path).parents][:-1]
    found = True
    for rule in RULES:
        pattern = rule.removeprefix("!").removeprefix("**/")
        names = [PurePosixPath(place).name if "**/" in rule else str(place) for place in places]
        if any(fnmatch(name, pattern) for name in names):
            found = rule.startswith("!")
    return found


def test_what_is_copied_exists_and_is_sent(dockerfile):
    lines = re.findall(r"^COPY (?!--)(.+)$", dockerfile, re.MULTILINE)
    assert lines
    for name in (word for line in lines for word in line.split()[:-1]):
        assert (ROOT / name).exists()
        assert name == "." or sent(name)


def test_all_of_the_packages_are_sent_and_nothing_else():
    for top in ("elastic_ps", "coordinator", "dl2_scheduler", "protos", "k8s/elastic_operator", "examples"):
        files = [path for path in (ROOT / top).rglob("*") if path.suffix in (".py", ".c", ".inc", ".json", ".proto")]
        assert [path for path in files if not sent(path.relative_to(ROOT).as_posix())] == []
        assert files
    assert all(sent(name) for name in ("pyproject.toml", "README.md", "requirements/lock.txt", "k8s/ctl.py"))
    for name in (
        ".git/HEAD",
        ".venv/bin/python",
        "build/x",
        "tests/docs/conftest.py",
        "benchmarks/run.py",
        "secret.pem",
    ):
        assert not sent(name)
    for name in ("k8s/chart/values.yaml", "elastic_ps/native/_kernels.so", "elastic_ps/core/__pycache__/token.pyc"):
        assert not sent(name)


def test_extras_and_packages_are_ours_and_pinned(dockerfile):
    (extras, more), *_ = re.findall(r'"/needs\[([\w,]+)\]"([^&]*)', dockerfile)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    pinned = {
        line.split("==")[0] for line in (ROOT / "requirements" / "lock.txt").read_text().splitlines() if "==" in line
    }
    assert set(more.split()) <= pinned


def test_images_and_the_chart_agree_on_versions_and_the_user(dockerfile):
    (tag,) = re.findall(r"-t (\S+) \.", dockerfile)
    assert tag.endswith(f":{PROJECT['version']}")
    values = yaml.safe_load((ROOT / "k8s" / "chart" / "values.yaml").read_text())
    user = re.search(r"runAsUser: (\d+)", (ROOT / "k8s" / "chart" / "templates" / "_helpers.tpl").read_text())[1]
    assert f"USER {user}:{user}" in dockerfile.splitlines()
    assert values["operator"]["image"] == values["scheduler"]["image"] == f"dl2/runtime:{PROJECT['version']}"
