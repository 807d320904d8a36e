"""Where compiled functions are kept, and who compiles them."""

import os
import subprocess
import sys

import pytest

from dl2_scheduler.cluster import compiled
from dl2_scheduler.cluster.compiled import cache_folder, usable_cache
from elastic_ps.system.file_lock import try_lock

COMPILES = """
import numpy as np
from dl2_scheduler.cluster.free_resources import fits_on
assert fits_on(np.ones((1, 1)), 0, np.ones(1))
print(sum(fits_on.stats.cache_misses.values()))
"""


def test_what_other_sources_compiled_to_is_not_read_and_removed(tmp_path):
    source = tmp_path / "a.py"
    source.write_text("one")
    first = cache_folder([source], tmp_path)
    first.mkdir()
    assert cache_folder([source], tmp_path) == first
    assert first.is_dir()
    source.write_text("two")
    assert cache_folder([source], tmp_path) != first
    assert not first.exists()
    assert source.exists()


@pytest.mark.slow
def test_of_processes_that_need_a_function_at_once_one_compiles_it(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "new")}
    command = [sys.executable, "-c", COMPILES]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(3)]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sorted(map(int, said)) == [0, 0, 1]


def test_who_has_stopped_while_it_compiled_is_not_waited_for_without_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compiled._config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_LOCK_SECONDS", 0.1)
    stopped = try_lock(tmp_path / "fill.lock")
    assert stopped is not None
    with compiled._lock("fill"):
        assert "another process has compiled fill for more than 0.1 s, or has stopped" in caplog.text
    os.close(stopped)
    with compiled._lock("fill"):
        assert try_lock(tmp_path / "fill.lock") is None


def test_a_cache_without_locks_is_used_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(compiled._config, "CACHE_DIR", str(tmp_path / "file"))
    with compiled._lock("fill"):
        assert compiled._taken("fill") is None


def test_functions_run_as_plain_python_where_nothing_is_to_be_compiled():
    script = COMPILES.replace("sum(fits_on.stats.cache_misses.values())", "fits_on(np.ones((1, 1)), 0, np.ones(1))")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_where_the_package_cannot_be_written_to_the_user_has_a_cache(tmp_path):
    """Numba raised when `dl2` was begun."""
    source, own = tmp_path / "a.py", tmp_path / "own"
    source.touch()
    beyond = source / "no folder"
    assert usable_cache([source], tmp_path / "package", [own]) == str(cache_folder([source], tmp_path / "package"))
    assert usable_cache([source], beyond, [beyond, own]) == str(cache_folder([source], own))
    assert own.stat().st_mode & 0o777 == 0o700
    assert usable_cache([source], beyond, [beyond]) == ""


def test_a_folder_that_others_can_write_to_is_no_cache(tmp_path):
    """What is in it would be run."""
    source, shared = tmp_path / "a.py", tmp_path / "shared"
    source.touch()
    shared.mkdir()
    (shared / "theirs").touch()
    shared.chmod(0o777)
    assert usable_cache([source], source / "no folder", [shared]) == ""


def test_functions_are_compiled_where_no_cache_can_be(tmp_path):
    (tmp_path / "file").touch()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "file"), "HOME": str(tmp_path / "file")}
    script = COMPILES.replace("sum(fits_on.stats.cache_misses.values())", "fits_on.stats.cache_path")
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("None\n", 0), done.stderr
