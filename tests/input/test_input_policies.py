"""A learnt policy's file, and an own policy's answers, before anything compiled sees them."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.policies.learnt import dl2
from dl2_scheduler.policies.learnt.array_files import MOST_BYTES
from dl2_scheduler.policies.learnt.features import KNOTS, SLOT_FEATURES, width
from dl2_scheduler.policies.learnt.paper.weights import paper_shapes
from dl2_scheduler.policies.learnt.weights import shapes
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.trace import write_trace

MODELS = ("dssm", "resnet-50")


def whole(paper: bool = False) -> dict[str, np.ndarray]:
    """A network's arrays, as a file has them."""
    sizes = {"base.bias": (4,), "rank.bias": (3,), "slot.bias": (2,)}
    wanted = paper_shapes(len(MODELS), (7,)) if paper else shapes(len(MODELS), sizes)
    arrays = {name: np.zeros(shape, np.float32) for name, shape in wanted.items()}
    own = {"minimum": np.array(True)} if paper else {}
    return {"models": np.array(json.dumps(MODELS)), **own, **arrays}


def written(tmp_path: Path, **changes: np.ndarray) -> Path:
    np.savez(tmp_path / "policy.npz", **{**whole(), **changes})
    return tmp_path


def test_what_is_whole_is_read(tmp_path: Path) -> None:
    assert dl2.load(written(tmp_path)).models == MODELS
    np.savez(tmp_path / "policy.npz", **whole(paper=True))
    assert dl2.load(tmp_path).models == MODELS


F = np.float32


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"base.weight": np.ones((200_000, 19), F), "base.bias": np.ones(200_000, F)}, "base.weight has the shape"),
        ({"base.weight": np.ones((200_000, 13), F), "base.bias": np.ones(200_000, F)}, "hidden.weight has the shape"),
        (
            {"workers.weight": np.zeros((4, 2), F)},
            rf"workers.weight .* of \(4, {len(KNOTS)}",
        ),
        ({"stop.weight": np.zeros((1, 9), F)}, "stop.weight has the shape"),
        ({"share": np.zeros(3, F)}, "share has the shape"),
        ({"slot.bias": np.zeros((0,), F), "slot.weight": np.zeros((0, SLOT_FEATURES), F)}, "slot"),
        ({"out.bias": np.zeros(3)}, "out.bias is of float64 instead of float32"),
        ({"out.bias": np.array(["a", "b", "c"])}, "out.bias is of <U1 instead of float32"),
        ({"out.bias": np.full(3, np.nan, F)}, "weights are not finite"),
        ({"models": np.array("5")}, "models is '5': give 1 to 10,000 names"),
        ({"models": np.array('{"a": 1, "b": 2}')}, "models is"),
        ({"models": np.array("[]")}, "models is"),
        ({"models": np.array('["x", 1]')}, "models is"),
        ({"models": np.array('["x"]')}, "has the shape"),
        ({"models": np.array('["x", "x"]')}, "models has a name twice"),
        ({"models": np.array("[" * 100_000)}, "no policy in"),
        ({"models": np.zeros(3, F)}, "no policy in|models is"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, np.ndarray], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        dl2.load(written(tmp_path, **changes))


def test_a_paper_network_that_does_not_fit(tmp_path: Path) -> None:
    for name in paper_shapes(len(MODELS), (7,)):
        arrays = whole(paper=True)
        arrays[name] = np.zeros((*arrays[name].shape[:-1], arrays[name].shape[-1] + 1), F)
        np.savez(tmp_path / "policy.npz", **arrays)
        with pytest.raises(BadInput, match="has the shape"):
            dl2.load(tmp_path)


@pytest.mark.slow
def test_headers_that_promise_too_much(tmp_path: Path) -> None:
    """An array of 8 TB in a few bytes, and a file that unpacks to more than is read."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2_000_000_000_000,)}
    )
    for size, content in ((None, header.getvalue()), (MOST_BYTES + 1, b"")):
        with zipfile.ZipFile(tmp_path / "policy.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("base.weight.npy", content if size is None else bytes(size))
        with pytest.raises(BadInput, match="no policy in"):
            dl2.load(tmp_path)


def test_no_objects_are_made(tmp_path: Path) -> None:
    np.savez(tmp_path / "policy.npz", **{**whole(), "share": np.array([{"a": 1}], dtype=object)})
    with pytest.raises(BadInput, match="an array of object"):
        dl2.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04."])
def test_what_is_no_file_of_arrays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "policy.npz").write_bytes(content)
    write_trace(tmp_path / "trace.jsonl", generate(Pattern.UNIFORM, 1, 1))
    words = ["simulate", "--policy", f"dl2:{tmp_path}", "--trace", str(tmp_path / "trace.jsonl")]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.output.startswith("dl2: no policy in ")) == (2, True), result.output


OWN = """
from dl2_scheduler.cluster.snapshot import Allocation, Grant

class Wrong:
    def __init__(self, answer):
        self.answer = answer
    def allocate(self, snapshot, room):
        return self.answer(snapshot)

def many(): return Wrong(lambda now: Allocation({job.job.id: Grant(10**6, 1) for job in now.jobs}))
def negative(): return Wrong(lambda now: Allocation({job.job.id: Grant(-1, -1) for job in now.jobs}))
def nothing(): return Wrong(lambda now: None)
def parts(): return Wrong(lambda now: Allocation({job.job.id: Grant(1.5, float("nan")) for job in now.jobs}))
def raising(): return Wrong(lambda now: now.missing)
"""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("many", "it gave 1 1000000 workers, which may have 1 to 16"),
        ("negative", "it gave 1 -1 workers"),
        ("nothing", "it answered None, which is no Allocation"),
        ("parts", "not numbers of tasks"),
        ("raising", "it raised AttributeError"),
    ],
)
def test_an_own_policys_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str) -> None:
    (tmp_path / "wrong_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_trace(tmp_path / "trace.jsonl", generate(Pattern.UNIFORM, 1, 1))
    result = CliRunner().invoke(app, ["simulate", "--policy", f"wrong_policies:{name}", "--trace", "trace.jsonl"])
    assert (result.exit_code, problem in result.output) == (2, True), result.output
    assert f"policy wrong_policies:{name}, slot 0" in result.output


def test_width() -> None:
    """The shapes above are those that features have."""
    assert shapes(2, {})["base.weight"][1] == width(2)
    assert make_policy("drf", shipped_speeds()) is not None
