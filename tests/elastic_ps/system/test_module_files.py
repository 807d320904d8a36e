"""Modules of users, found without being imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.system.module_files import find, load, module_file
from tests.paths import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, in which modules of this test are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("their_rules", "their_package", "their_package.rules"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_the_digest_is_that_of_the_file(folder: Path) -> None:
    file = folder / "their_rules.py"
    file.write_text("RATE = 1")
    before = module_file("their_rules")
    assert (before.name, before.path) == ("their_rules", str(file))
    file.write_text("RATE = 2")
    assert module_file("their_rules").digest != before.digest
    file.write_text("RATE = 1")
    assert module_file("their_rules") == before
    assert "their_rules" not in sys.modules


def test_where_the_working_directory_is_gone_nothing_is_found_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert find("their_rules") is None
    assert find("json") is not None


def test_a_module_of_a_package_is_found_though_the_package_cannot_be_imported(folder: Path) -> None:
    (folder / "their_package").mkdir()
    (folder / "their_package" / "__init__.py").write_text("raise ValueError")
    (folder / "their_package" / "rules.py").write_text("RATE = 1")
    assert module_file("their_package.rules").path == str(folder / "their_package" / "rules.py")


def test_what_has_no_file_has_no_digest(folder: Path) -> None:
    (folder / "their_package").mkdir()
    for name in ("their_package", "no_such_module", "sys", ""):
        assert module_file(name) == ModuleFile(name)
    assert find("no_such_module") is None


def test_a_file_that_has_changed_before_it_was_imported_is_refused(folder: Path) -> None:
    file = folder / "their_rules.py"
    file.write_text("RATE = 1")
    found = module_file("their_rules")
    file.write_text("RATE = 2")
    with pytest.raises(ConfigurationError, match=r"their_rules\.py has changed since this server was started"):
        load(found)
    file.write_text("RATE = 1")
    assert load(found).RATE == 1
    file.write_text("RATE = 2")
    assert load(found).RATE == 1, "it has the code that was found"


def test_a_server_loads_what_it_has_found_in_its_folder(folder: Path) -> None:
    """It is started with -P, which keeps that folder from coming before ours."""
    (folder / "their_rules.py").write_text("print('loaded')")
    program = "from elastic_ps.system.module_files import load, module_file; load(module_file('their_rules'))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output([sys.executable, "-P", "-c", program], env=environment) == b"loaded\n"
