"""What `make bench-joins` makes of the steps that workers have written down."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from benchmarks.support import growing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a worker that made steps 0 to 9 alone, one each 100 ms, the last at 10.9 s; it is 11 s now."""
    monkeypatch.setattr(growing, "_STEPS", 10)
    monkeypatch.setattr(growing, "time", SimpleNamespace(monotonic=lambda: 11.0))
    write(tmp_path, "first", [(10.0 + 0.1 * number, number, 1) for number in range(10)])
    return tmp_path


def write(folder: Path, worker: str, steps: list[tuple[float, int, int]]) -> None:
    lines = "".join(f"{at:.6f} {number} {workers}\n" for at, number, workers in steps)
    with (folder / f"{worker}.steps").open("a") as file:
        file.write(lines)


def test_a_pause_is_the_longest_time_without_a_step_of_anybody(folder: Path) -> None:
    def ask(workers: int) -> None:
        write(folder, "first", [(11.5 + 0.1 * number, 10 + number, workers) for number in range(11)])
        write(folder, "second", [(11.55 + 0.1 * number, 10 + number, workers) for number in range(11)])

    found = growing._changed(folder, ask, 2)
    assert found.pause_ms == pytest.approx(500, abs=1)  # from 10.9 to 11.5, less a step
    assert found.again == 0


def test_steps_behind_the_last_checkpoint_are_made_again(folder: Path) -> None:
    def ask(workers: int) -> None:
        write(folder, "first", [(11.02, 10, 1)])  # before it ended
        for worker in ("third", "second"):
            write(folder, worker, [(15.0 + 0.1 * number, 5 + number, workers) for number in range(11)])

    found = growing._changed(folder, ask, 2)
    assert found.pause_ms == pytest.approx(3880, abs=1)
    assert found.again == 6  # 5 to 10


def test_half_a_line_is_no_step(folder: Path) -> None:
    (folder / "second.steps").write_text("12.0 10 2\n12.1 1")
    assert growing._steps(folder)[-1] == growing.MadeStep(12.0, 10, 2)


def test_workers_that_do_not_come_are_not_waited_for_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "_PATIENCE", -1.0)
    with pytest.raises(growing.TrialFailed, match="2 workers did not train"):
        growing._changed(folder, lambda workers: None, 2)
