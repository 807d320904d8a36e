"""A process that keeps the memory that it frees."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from elastic_ps.system.process.kept_memory import keep_freed_memory
from tests.paths import ROOT

FAULTS = """
import resource
from elastic_ps.system.process.kept_memory import keep_freed_memory
if {keeps}:
    assert keep_freed_memory({{}})
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    before = faults()
    block = b"x" * (64 << 20)
    del block
print(faults() - before)
"""


@pytest.mark.parametrize("keeps", [False, True])
def test_what_was_freed_is_used_again_without_the_kernel(keeps):
    """A block of 64 MiB has 16,384 pages, which are the kernel's again where nobody keeps them."""
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keeps=keeps)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (int(ran.stdout) < 10) is keeps


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_somebodys_own_choice_stands(name, monkeypatch):
    asked = []
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=lambda *given: asked.append(given) or 1))
    assert not keep_freed_memory({name: "1"})
    assert not asked
    assert keep_freed_memory({"PATH": "/bin"})
    assert [parameter for parameter, _ in asked] == [-3, -1]


def test_an_older_glibc_keeps_blocks_of_32_mib(monkeypatch):
    """It refuses a larger bound, and keeps the one that it has."""
    taken = []

    def mallopt(parameter, value):
        if parameter == -3 and value > 1 << 25:
            return 0
        taken.append((parameter, value))
        return 1

    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert keep_freed_memory({})
    assert taken == [(-3, 1 << 25), (-1, (1 << 31) - 1)]


def test_where_there_is_no_glibc_nothing_is_changed(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace())
    assert not keep_freed_memory({})
