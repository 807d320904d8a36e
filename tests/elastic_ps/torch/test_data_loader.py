"""Batches of the elastic order, by this process and by others."""

import gc
import os
import random
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError, ElasticError  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402
from tests.paths import ROOT  # noqa: E402


class Numbers:
    """A data set of its own indices, with what is drawn at random beside them."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, torch.rand(1).item(), random.random(), np.random.rand()


class Broken(Numbers):
    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        if index == 5:
            raise OSError("bad file 5")
        return super().__getitem__(index)


class Stuck(Numbers):
    """One whose storage answers no more, once it has been asked."""

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        Path(os.environ["ASKED"]).touch()
        signal.pause()
        raise AssertionError


LEAVES = """
import atexit, os, sys, time
import numpy as np
from elastic_ps.torch.data import _load, _Processes
from tests.elastic_ps.torch.test_data_loader import Stuck, collate
processes = _Processes(1, Stuck(), collate, None)
processes._pool.submit(_load, np.arange(2), 1)
while not os.path.exists(os.environ["ASKED"]):
    time.sleep(0.01)
atexit.register(print, "leaves its job")
sys.exit(3)
"""

KILLED = """
import os, signal
from elastic_ps.torch.data import _Processes
from tests.elastic_ps.torch.test_data_loader import Numbers, collate
processes = _Processes(1, Numbers(), collate, None)
print(processes._pool.submit(os.getpid).result(), flush=True)
signal.pause()
"""


FORKS = """
import multiprocessing
import os
from elastic_ps.torch.data import _Processes
from tests.elastic_ps.torch.test_data_loader import Numbers, collate
processes = _Processes(1, Numbers(), collate, None)
before = processes._pool.submit(os.getpid).result()
fork = multiprocessing.get_context("fork").Process(target=int)
fork.start()
fork.join()
print(processes._pool.submit(os.getpid).result() == before)
"""

ALL_TERMINATED = """
import multiprocessing.forkserver
import os, signal, time
from elastic_ps.torch.data import _Processes
from tests.elastic_ps.torch.test_data_loader import Numbers, collate
processes = _Processes(1, Numbers(), collate, None)
before = processes._pool.submit(os.getpid).result()
for process in (multiprocessing.forkserver._forkserver._forkserver_pid, before):
    os.kill(process, signal.SIGTERM)
assert processes._pool.submit(os.getpid).result() == before
processes = _Processes(1, Numbers(), collate, None)
print(processes._pool.submit(os.getpid).result() != before)
"""

SCARCE = """
import resource
import sys
import elastic_ps.torch as elastic
from elastic_ps.core.errors import ElasticError
from tests.elastic_ps.torch.lone_job import lone_job
from tests.elastic_ps.torch.test_data_loader import Numbers, collate, epochs, shreds
if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64 if sys.argv[1] == "both" else hard))
    with lone_job():
        try:
            list(epochs(elastic.DataLoader(Numbers(), 4, num_workers=1, collate_fn=shreds)))
        except ElasticError as error:
            print(error)
"""


class Together(Numbers):
    def __getitems__(self, wanted: list[int]) -> list[int]:
        return [-index for index in wanted]


class Whole(Numbers):
    """One that makes batches itself, which is how arrays are read fastest."""

    def __getitems__(self, wanted: list[int]) -> dict[str, torch.Tensor]:
        return {"numbers": torch.tensor(wanted)}


class OneByOne(Numbers):
    __getitems__ = None


def collate(samples: list[Any]) -> list[Any]:
    return samples


def shreds(samples: list[Any]) -> list[torch.Tensor]:
    """A batch of more tensors than a process may have descriptors."""
    return [torch.ones(1) for _ in range(40 * len(samples))]


def noted(number: int) -> None:
    np.random.seed(number)  # which each batch does anew
    global began
    began = number


def renumbered(_number: int) -> None:
    """Give the data set of this process what it has from nobody else, as a script opens a file."""
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.own = (info.id, info.num_workers)


class Renumbered(Numbers):
    def __getitem__(self, index: int) -> Any:
        return self.own  # type: ignore[attr-defined]


def asking(_number: int) -> None:
    """Ask for what only a worker has, as a script seeds the processes of each otherwise."""
    global told
    try:
        told = f"rank {elastic.rank()}"
    except ConfigurationError as error:
        told = f"{elastic.is_chief()}: {error}"


def with_answer(_samples: list[Any]) -> str:
    return told


began = -1
told = ""


def with_number(samples: list[Any]) -> tuple[int, list[int]]:
    return began, [sample[0] for sample in samples]


def epochs(loader: elastic.Sampler, count: int = 1) -> Iterator[list[Any]]:
    """The batches of each epoch, after the rehearsal's."""
    model = torch.nn.Linear(1, 1)
    optimizer = elastic.Optimizer(model, torch.optim.SGD(model.parameters(), 0.1))
    for epoch in elastic.epochs(count):
        found = []
        for batch in loader:
            found.append(batch)
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
        yield found[1:] if epoch == 0 else found


def test_plain_batches_in_the_data_sets_order() -> None:
    with lone_job():
        loader = elastic.DataLoader(Numbers(), 4)
        assert len(loader) == 3
        assert loader.global_batch == 4
        (found,) = epochs(loader)
    assert [batch[0].tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_batches_are_what_a_data_set_makes_of_several_indices() -> None:
    with lone_job():
        (found,) = epochs(elastic.DataLoader(Whole(), 4, collate_fn=lambda batch: batch["numbers"].tolist()))
        assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with lone_job():
        (found,) = epochs(elastic.DataLoader(OneByOne(), 4))
        assert [batch[0].tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_the_short_last_step_may_be_left_out() -> None:
    with lone_job():
        (found,) = epochs(elastic.DataLoader(Together(), 4, drop_last=True, collate_fn=collate))
    assert found == [[0, -1, -2, -3], [-4, -5, -6, -7]]


def test_each_epoch_has_an_order_of_its_own_by_the_jobs_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        with lone_job(seed):
            both = list(epochs(elastic.DataLoader(Numbers(), 4, shuffle=True), 2))
        orders.append([[index for batch in found for index in batch[0].tolist()] for found in both])
        assert all(sorted(order) == list(range(10)) for order in orders[-1])
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][0] != orders[0][1]


@pytest.mark.parametrize("processes", [0, 2])
def test_a_loader_that_the_script_has_let_go_is_gone(processes: int) -> None:
    """Its processes end then, of which a script that makes a loader in each epoch would have more and more."""
    gc.disable()
    try:
        with lone_job():
            loader = elastic.DataLoader(Numbers(), 4, num_workers=processes)
            if not processes:
                assert len(next(epochs(loader))) == 3
            gone = weakref.ref(loader)
            del loader
        assert gone() is None
    finally:
        gc.enable()


def test_a_data_set_that_grows_is_refused() -> None:
    numbers = list(range(10))
    with lone_job():
        found = epochs(elastic.DataLoader(numbers, 4), 2)
        next(found)
        numbers.append(10)
        with pytest.raises(ConfigurationError, match="has 11 samples now, and had 10 when its loader was made"):
            next(found)


def test_a_sampler_yields_the_indices() -> None:
    with lone_job():
        sampler = elastic.Sampler(range(10), 4)
        assert len(sampler) == 3
        (found,) = epochs(sampler)
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.slow
def test_processes_load_the_same_at_random_in_each_run() -> None:
    runs = []
    for _ in range(2):
        with lone_job():
            loader = elastic.DataLoader(Numbers(), 4, num_workers=2, collate_fn=collate)
            runs.append(list(epochs(loader, 2)))
    assert runs[0] == runs[1]
    first, second = runs[0]
    assert [sample[0] for batch in first for sample in batch] == list(range(10))
    drawn = [number for found in (first, second) for batch in found for sample in batch for number in sample[1:]]
    assert len(set(drawn)) == len(drawn)


class OfModel:
    """It makes batches by what it asks a model, as what pads labels for an encoder and a decoder does."""

    def __init__(self, model: torch.nn.Module):
        self.model = model

    def __call__(self, samples: list[Any]) -> torch.Tensor:
        return torch.tensor([[float(sample[0])] for sample in samples])


@pytest.mark.slow
def test_a_collate_fn_may_have_the_model() -> None:
    """It is pickled with it: PyTorch moves parameters into shared memory, and frozen ones counted as changed."""
    with lone_job() as (_, servers):
        model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
        optimizer = elastic.Optimizer(model, torch.optim.SGD(model.parameters(), 0.001))
        loader = elastic.DataLoader(Numbers(), 4, num_workers=1, collate_fn=OfModel(model))
        for epoch in elastic.epochs(2):
            model[0].requires_grad_(epoch > 0)
            for batch in loader:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
    assert sorted(servers.exchanges[0]) == ["s:1.bias", "s:1.weight"]
    assert sorted(servers.exchanges[-1]) == ["s:0.bias", "s:0.weight", "s:1.bias", "s:1.weight"]


@pytest.mark.slow
def test_each_process_begins_with_its_number() -> None:
    with lone_job():
        loader = elastic.DataLoader(Numbers(), 2, num_workers=2, collate_fn=with_number, worker_init_fn=noted)
        found = [batch for batches in epochs(loader, 3) for batch in batches]
    assert {number for number, _ in found} <= {0, 1}
    assert [index for _, indices in found for index in indices] == list(range(10)) * 3


@pytest.mark.slow
def test_a_process_that_asks_for_its_rank_is_no_worker() -> None:
    """It joined the job as one more worker, since it has the environment of the one that it loads for."""
    with lone_job():
        loader = elastic.DataLoader(Numbers(), 4, num_workers=1, collate_fn=with_answer, worker_init_fn=asking)
        (found,) = epochs(loader)
    assert {text.partition(",")[0] for text in found} == {"False: a process that multiprocessing has started"}


@pytest.mark.slow
@pytest.mark.parametrize("part", ["dataset", "collate_fn", "worker_init_fn"])
def test_what_cannot_be_given_to_processes_is_said(part: str) -> None:
    class Local(Numbers):
        """It has no name by which a process could import it."""

    given = {"dataset": Local(), "collate_fn": lambda samples: samples, "worker_init_fn": lambda number: None}
    arguments = {"dataset": Numbers(), part: given[part]}
    with lone_job(), pytest.raises(ConfigurationError, match=r"num_workers=1: .*<locals>.*: define it at the top"):
        list(epochs(elastic.DataLoader(global_batch=4, num_workers=1, **arguments)))


def test_a_process_knows_which_it_is_and_its_data_set() -> None:
    with lone_job():
        loader = elastic.DataLoader(Renumbered(), 4, num_workers=1, worker_init_fn=renumbered, collate_fn=collate)
        (found,) = epochs(loader)
    assert found[0] == [(0, 1)] * 4
    assert torch.utils.data.get_worker_info() is None


def test_an_error_in_a_process_reaches_the_script() -> None:
    with lone_job(), pytest.raises(OSError, match="bad file 5"):
        list(epochs(elastic.DataLoader(Broken(), 4, num_workers=1)))


class BadSample(Exception):
    """An error that cannot be made again of its text alone."""

    def __init__(self, path: str, why: str):
        super().__init__(f"{path}: {why}")


class Truncated(Numbers):
    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        raise BadSample(f"{index}.jpg", "truncated")


def test_an_error_that_cannot_be_unpickled_is_told_in_its_own_words() -> None:
    """It broke the processes' queue, and was told as one of them that had been killed."""
    with lone_job(), pytest.raises(RuntimeError, match=r"(?s)BadSample.*0\.jpg: truncated"):
        list(epochs(elastic.DataLoader(Truncated(), 4, num_workers=1)))


class Killing(Numbers):
    """One that is too large for the memory that is left."""

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.slow
def test_a_process_that_was_killed_is_said() -> None:
    with lone_job(), pytest.raises(ElasticError, match=r"loads data for this worker .* has ended: it was killed"):
        list(epochs(elastic.DataLoader(Killing(), 4, num_workers=1)))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("who", ["both", "worker"])
def test_a_worker_without_room_for_a_batch_is_told_so(who: str, tmp_path: Path) -> None:
    """It read that a process was killed, perhaps for want of memory."""
    script = tmp_path / "train.py"
    script.write_text(SCARCE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, str(script), who], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "it may have 64 file descriptors: raise `ulimit -n`" in found.stdout, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_leaves_though_what_loads_for_it_hangs(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LEAVES],
        cwd=ROOT,
        env={**os.environ, "ASKED": str(tmp_path / "asked")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 3, found.stderr
    assert found.stdout == "leaves its job\n"


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("script", [FORKS, ALL_TERMINATED], ids=["fork", "SIGTERM"])
def test_processes_stay_when_a_fork_of_their_worker_ends_and_when_all_are_told_to_end(script: str) -> None:
    """Who ends all processes of a machine together signals those too, which a worker needs until it is drained."""
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert found.stdout == "True\n", found.stderr


@pytest.mark.slow
def test_processes_end_with_a_worker_that_is_killed() -> None:
    """They would stay for ever, with PyTorch in memory, where the launcher was killed too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        loading = os.pidfd_open(int(worker.stdout.readline()))
        worker.kill()
    assert wait([loading], 30)
    os.close(loading)
