"""The folder of a run: what stands in it and is something else is told of, and not gone on with."""

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.run_folder import Curves, RunFolder


def test_a_curve_goes_on_from_the_checkpoint(tmp_path):
    for kept, wanted in ((0, ["step,loss", "1,0.5"]), (1, ["step,loss", "1,0.5", "2,0.5"])):
        curves = Curves(RunFolder(tmp_path), "learning", kept)
        curves.add(kept + 1, {"loss": 0.5})
        curves.close()
        assert (tmp_path / "learning.csv").read_text().splitlines() == wanted


@pytest.mark.parametrize(
    "found",
    [
        b"epoch,loss\n1,0.5\n",
        b"step,loss\n1,0.5,7\n",
        b"step,loss\nx,0.5\n",
        "step,loss\n²,0.5\n".encode(),
        b"step,loss\n" + b"9" * 5000 + b",0.5\n",
        b"step\n\xff\n",
        b'step\n"1',
    ],
)
def test_a_file_that_is_something_else_is_told_of_and_stays(tmp_path, found):
    (tmp_path / "learning.csv").write_bytes(found)
    with pytest.raises(BadInput, match=r"learning\.csv is no curve of a run .*: move it away, or name another folder"):
        Curves(RunFolder(tmp_path), "learning", kept=3)
    assert (tmp_path / "learning.csv").read_bytes() == found
