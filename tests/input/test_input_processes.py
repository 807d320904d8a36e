"""The three programs as a person starts them: a sentence on stderr, nothing on stdout, no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        ("dl2 trace show /dev/zero", 2, "dl2: /dev/zero: not a file of data: give the path of one"),
        ("elasticrun --checkpoint file:///proc/x train.py", 2, "elasticrun: --checkpoint file:///proc/x: "),
        ("elasticctl export --from file:///nowhere/a -o out", 1, "elasticctl: file:///nowhere/a holds no complete"),
    ],
)
def test_one_sentence(tmp_path: Path, line: str, status: int, sentence: str) -> None:
    (tmp_path / "train.py").touch()
    program, *words = line.split()
    done = subprocess.run(
        [BIN / program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1
