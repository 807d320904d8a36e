"""What a worker had when it began, and leaves as it is when it ends."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.paths import ROOT

COUNTS = "import gc; {before}; import {adapter}; print(gc.get_freeze_count() > len(gc.get_objects()))"
HELPED = """
import multiprocessing
helper = multiprocessing.get_context("spawn").Process(target=exec, args=({counts!r},))
helper.start()
helper.join()
"""
TORCH, MXNET = "elastic_ps.torch", pytest.param("elastic_ps.mxnet", marks=pytest.mark.mxnet)

FORKS = """
import json, os, sys
import torch
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
script, environment, output = json.loads(line)
os.environ.update(environment)
opened = os.open(output, os.O_WRONLY | os.O_CREAT)
os.dup2(opened, 1)
os.close(opened)
del line, child, environment, output, opened
exec(script)
"""
"""Runs scripts, each in a fork that ends as any interpreter does: PyTorch is imported once."""


@pytest.fixture(scope="module")
def forks():
    command, pipe = [sys.executable, "-c", FORKS], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def run(request, tmp_path):
    """run(script, environment, adapter) returns the status of a script and what it prints."""

    def run(script, environment, adapter=TORCH):
        if adapter != TORCH or find_spec("torch") is None:
            command = [sys.executable, "-c", script]
            ran = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
            return ran.returncode, ran.stdout
        process, output = request.getfixturevalue("forks"), tmp_path / "output"
        process.stdin.write(json.dumps([script, environment, str(output)]) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline()), output.read_text()

    return run


@pytest.fixture
def is_frozen(run):
    def is_frozen(adapter, before="pass", within="{counts}", **environment):
        counts = COUNTS.format(adapter=adapter, before=before)
        status, printed = run(within.format(counts=counts), environment, adapter)
        assert status == 0
        return {"True\n": True, "False\n": False}[printed]

    return is_frozen


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"ELASTIC_COORDINATOR": "127.0.0.1:1"}], ids=["alone", "worker"])
@pytest.mark.parametrize("adapter", [TORCH, MXNET])
def test_a_worker_collects_nothing_of_what_its_adapter_imports(is_frozen, adapter, environment):
    """A script that only imports the adapter is not told how to collect its garbage."""
    assert is_frozen(adapter, **environment) is bool(environment)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [TORCH, MXNET])
def test_a_process_that_loads_data_for_a_worker_is_left_alone(is_frozen, adapter):
    assert not is_frozen(adapter, within=HELPED, ELASTIC_COORDINATOR="127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "before"),
    [
        (TORCH, "import torch; model = torch.nn.Linear(1, 1)"),
        (TORCH, "Run = type('Run', (), {'log': open('/dev/null', 'w')})"),
        (TORCH, "import io; held = io.BufferedWriter(io.BytesIO())"),
        (TORCH, "import torch; from torch import optim; made = optim.SGD([torch.ones(1)], lr=1)"),
        pytest.param(
            "elastic_ps.mxnet",
            "import numpy; numpy.bool = bool; import mxnet; net = mxnet.gluon.nn.Dense(1)",
            marks=pytest.mark.mxnet,
        ),
    ],
)
def test_a_script_that_has_begun_may_give_up_what_it_has_made(is_frozen, adapter, before):
    """And the adapter finds its schedulers, which it would not among what is frozen; files of a class are flushed."""
    assert not is_frozen(adapter, before, ELASTIC_COORDINATOR="127.0.0.1:1")


ENDS = """
import atexit, ctypes, sys
from elastic_ps.system.process.quick_end import skip_exit_handlers
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fputs(b"C's", ctypes.c_void_p(libc.fopen({file!r}, b"w")))
atexit.register(print, "Python's")
abort = ctypes.cast(libc.abort, ctypes.c_void_p)
if not {later}:
    libc.on_exit(abort, None)
print(skip_exit_handlers({environment}))
if {later}:
    libc.on_exit(abort, None)
sys.exit(3)
"""


def ends(file, later=False, **environment):
    """Run a script with a handler that aborts; return its status, what it prints, and what C has written."""
    script = ENDS.format(file=bytes(file), later=later, environment=environment)
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    return ran.returncode, ran.stdout.split(), file.read_text()


def test_a_librarys_handler_of_before_is_skipped_and_nothing_else(tmp_path):
    """The status is the script's, Python's handlers run, and what C holds back of a file is written."""
    assert ends(tmp_path / "file") == (3, ["True", "Python's"], "C's")


def test_a_librarys_handler_of_later_runs(tmp_path):
    assert ends(tmp_path / "file", later=True) == (-signal.SIGABRT, ["True", "Python's"], "")


def test_who_has_preloaded_a_library_has_its_handlers_run(tmp_path):
    assert ends(tmp_path / "file", LD_PRELOAD="libprofiler.so") == (-signal.SIGABRT, ["False", "Python's"], "")


LEAVES = """
import contextlib, ctypes, io, socket, sys
import elastic_ps.torch
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.abort, ctypes.c_void_p), None)
class Finalised:
    def __del__(self):
        pass
class Unhashable(type):
    __hash__ = None
@contextlib.contextmanager
def context():
    yield
begun = context()
begun.__enter__()
left = {left}
del begun
sys.exit(3)
"""


@pytest.fixture
def ends_with(run):
    """Return the status of a worker whose script leaves something when it ends; libraries' handlers abort it."""

    def ends_with(left, coordinator="127.0.0.1:1"):
        return run(LEAVES.format(left=left), {"ELASTIC_COORDINATOR": coordinator} if coordinator else {})[0]

    return ends_with


@pytest.mark.slow
@pytest.mark.parametrize(
    "left",
    [
        "None",
        "context()",
        "socket.socket()",
        "__import__('grpc').insecure_channel('127.0.0.1:1')",
        "open('/etc/hosts', 'rb', 0).close(), io.FileIO('/etc/hosts').close()",
        "libc.fopen(b'/etc/hosts', b'r')",
        "Unhashable('Kind', (), {})()",
    ],
)
def test_a_worker_of_pytorch_ends_without_its_libraries_handlers(ends_with, left):
    assert ends_with(left) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "left",
    [
        "Finalised()",
        "begun",
        "type('More', (Finalised,), {{}})()",
        "io.BufferedRandom(io.BytesIO())",
        "open('{file}', 'w')",
        "libc.fopen(b'{file}', b'w')",
    ],
)
def test_a_worker_that_may_have_more_to_do_ends_as_ever(ends_with, left, tmp_path):
    assert ends_with(left.format(file=tmp_path / "file")) == -signal.SIGABRT


@pytest.mark.slow
def test_a_script_of_its_own_ends_as_ever(ends_with):
    assert ends_with("None", coordinator="") == -signal.SIGABRT
