"""A process that multiprocessing starts knows that it is one from its first line, the import of the script."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing, sys
from elastic_ps.system.process.helper_processes import is_helper_process

imported_by_a_helper = is_helper_process()

def loads():
    return imported_by_a_helper, is_helper_process()

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(imported_by_a_helper, *pool.apply(loads))
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["forkserver", "spawn"])
def test_it_knows_while_it_imports_the_script(tmp_path: Path, way: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), way], capture_output=True, text=True, check=True)
    assert done.stdout == "False True True\n"
