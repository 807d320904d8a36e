"""An error that nobody foresaw is a sentence, unless its traceback is asked for."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_ps.system.last_resort import TRACEBACK, one_sentence


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyError("a\n\x1bb"), "this should not happen (KeyError: 'a\\n\\x1bb')"),
        (RecursionError("deep"), "this should not happen (RecursionError: deep)"),
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
