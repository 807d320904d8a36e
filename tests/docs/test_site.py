"""The environment in which `make docs-site` builds the site."""

import os
import subprocess
from pathlib import Path

from tests.paths import ROOT

PYTHON = """#!/bin/sh
[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
exit 0
"""


def test_it_is_made_by_python3_where_there_is_no_other(tmp_path: Path) -> None:
    """As `make setup` does: a machine may have no program of the name python3.11."""
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    made = tmp_path / "site" / ".installed"
    given = ("PYTHON=no-such-python", f"SITE={tmp_path / 'site'}")
    subprocess.run(["make", "-C", ROOT, *given, made], env=environment, check=True, capture_output=True)
    assert made.exists()
