"""An error that nobody foresaw is a sentence, unless its traceback is asked for."""

import errno
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from elastic_ps.system.last_resort import TRACEBACK, interruptible, one_sentence
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyError("a\n\x1bb"), "this should not happen (KeyError: 'a\\n\\x1bb')"),
        (RecursionError("deep"), "this should not happen (RecursionError: deep)"),
        (
            ModuleNotFoundError("No module named 'numba'", name="numba"),
            "this needs the package numba, which is not installed: pip install '/path/to/checkout[scheduler]'",
        ),
        (
            ModuleNotFoundError("No module named 'ours'", name="ours"),
            "this should not happen (ModuleNotFoundError: No module named 'ours')",
        ),
        (MemoryError(), "there is not enough memory for this: give smaller files or numbers"),
    ],
)
def test_one_sentence(error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, one_sentence("dl2", {}):
        raise error
    lines = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"dl2: {sentence}")


def test_its_traceback() -> None:
    with pytest.raises(KeyError), one_sentence("dl2", {TRACEBACK: "1"}):
        raise KeyError("a")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space is left where this is written: free some"),
        (OSError(errno.EMFILE, "Too many open files", "/a"), "/a: this process may not open as many files as it needs"),
    ],
)
def test_what_the_machine_lacks_is_nobodys_fault(
    error: OSError, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), one_sentence("dl2", {}):
        raise error
    told = capsys.readouterr().err
    assert told.startswith(f"dl2: {sentence}")
    assert "report" not in told


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_none_that_a_file_gets(tmp_path: Path, closed: str) -> None:
    """What is printed goes nowhere, and not into the next file that was opened."""
    journal = tmp_path / "journal"
    program = f"""
import sys
import tomllib
from elastic_ps.system.last_resort import one_sentence
with one_sentence("dl2"):
    journal = open({str(journal)!r}, "wb")
    assert journal.fileno() > 2
    print("on stdout", flush=True)
    sys.stderr.write("on stderr")
    sys.stdin.read(0)
    sys.stdout.isatty()
"""
    shell = f'exec "$0" -c "$1" {closed}'
    done = subprocess.run(["sh", "-c", shell, sys.executable, program], check=False, timeout=60)
    assert done.returncode == 0
    assert journal.read_bytes() == b""


INTERRUPTED = """
import signal
import time
from elastic_ps.system.last_resort import interruptible
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
with interruptible():
    print("importing", flush=True)
    time.sleep(60)
"""


def test_ctrl_c_while_a_program_is_imported_leaves_no_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-signal.SIGINT, "")


def test_ctrl_c_is_pythons_again_after_the_imports() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_what_programs_are_started_by_is_light() -> None:
    """So Ctrl-C meets `interruptible` from nearly the first moment on."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    modules = [script.partition(":")[0] for script in scripts]
    look = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert len(modules) == 3
    assert not {"grpc", "numpy", "typer", "rich"} & set(done.stdout.split())
