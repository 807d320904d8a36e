"""A process that loads data for a script has the worker's environment, and is no worker."""

import multiprocessing

import pytest

import elastic_ps
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.script import worker_job


@pytest.fixture
def in_helper(monkeypatch):
    """This process passes for one that multiprocessing has started, in a job that nobody is to join."""
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    monkeypatch.delattr(worker_job.NodeSettings, "from_environment")


@pytest.mark.parametrize(
    "call",
    [
        elastic_ps.rank,
        elastic_ps.num_workers,
        lambda: elastic_ps.report(0, loss=0.5),
        lambda: next(elastic_ps.epochs(3)),
        lambda: next(iter(elastic_ps.Sampler(16, 8))),
        worker_job.current_job,
    ],
    ids=["rank", "num_workers", "report", "epochs", "Sampler", "a key store"],
)
@pytest.mark.usefixtures("in_helper")
def test_it_does_not_join_the_job_a_second_time(call):
    """It came as one more worker, of which the others waited for a slice of each step."""
    with pytest.raises(ConfigurationError, match=r"to load data \(num_workers\) say, is no worker of the job: it imp"):
        call()


@pytest.mark.usefixtures("in_helper")
def test_what_scripts_call_at_their_top_does_nothing_there():
    """It imports the script, whose `if elastic_ps.is_chief():` is not to end it."""
    elastic_ps.init()
    assert not elastic_ps.is_chief()


def test_a_fork_of_a_worker_is_none_either(monkeypatch):
    """It has a copy of the worker's job, whose chief it is not."""
    monkeypatch.setattr(worker_job, "_current", object())
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert not elastic_ps.is_chief()
    with pytest.raises(ConfigurationError, match="hand over what it needs of the job, such as the rank"):
        elastic_ps.rank()
