"""Libraries that name CUDA's load without them, by what the scheduler's image is built with."""

import shutil
import subprocess
import sys

import pytest

from tests.paths import ROOT

SCRIPT = ROOT / "k8s" / "images" / "without_cuda.sh"
TORCH = """
import ctypes, os, pathlib
from unittest.mock import MagicMock
library = ctypes.CDLL(pathlib.Path(__file__).with_name("lib") / "libtorch.so", os.RTLD_NOW)
nn, ones, cuda = MagicMock(), MagicMock(), MagicMock()
cuda.is_available.return_value = bool(library.available())
"""
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")


def compiled(path, code, *linked):
    """A library of this code, as GPU builds are linked: found by the folders that torch's own names, then beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    where = "-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
    words = ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", "-x", "c", "-", "-x", "none", *linked, where]
    subprocess.run([*map(str, words), "-o", path], input=code, text=True, check=True)
    return path


@pytest.fixture
def python(tmp_path):
    """An interpreter that has a torch for GPUs, and of CUDA the runtime alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    runtime = compiled(site / "nvidia" / "cu13" / "lib" / "libcudart.so.13", "int cudaGetDeviceCount() { return 0; }")
    blas = compiled(tmp_path / "away" / "libcublas.so.13", "void cublasDot() {}")
    code = "int available() { return cudaGetDeviceCount(); } void dot() { cublasDot(); }"
    compiled(site / "torch" / "lib" / "libtorch.so", code, runtime, blas)
    (site / "torch" / "__init__.py").write_text(TORCH)
    return tmp_path / "bin" / "python"


@pytest.mark.slow
def test_torch_can_be_imported_without_the_libraries_that_only_gpus_need(python):
    def asked(code):
        return subprocess.run([python, "-c", f"import torch; {code}"], capture_output=True, text=True, check=False)

    assert "libcublas.so.13: cannot open shared object file" in asked("").stderr
    subprocess.run(["sh", SCRIPT, python], check=True)
    assert asked("print(torch.library.available())").stdout == "0\n"  # asked of the runtime, which is no stand-in
    assert asked("torch.library.dot()").returncode < 0


def test_no_image_comes_of_a_torch_that_cannot_be_imported(python):
    (lib,) = python.parents[1].glob("lib/python*/site-packages/torch/lib")
    (lib / "libtorch.so").write_bytes(b"")
    assert subprocess.run(["sh", SCRIPT, python], capture_output=True, check=False).returncode
