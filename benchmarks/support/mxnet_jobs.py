"""This module has six MXNet jobs of three kinds, for benchmarks that need jobs of a cluster which really compute."""

from pathlib import Path

from examples.demo_cluster.jobs import SubmittedJob, elastic_job

_EPOCHS = {"digits": 40, "mlp": 6, "lstm": 20}
_ARRIVALS = (("digits-1", 0), ("mlp-1", 5), ("lstm-1", 15), ("digits-2", 25), ("lstm-2", 40), ("mlp-2", 50))


def mxnet_jobs(longer: int, results: Path) -> list[SubmittedJob]:
    """Return the jobs, by arrival. Workers dominate in digits and lstm, servers in mlp.

    Args:
        longer: times the epochs that they have else.
        results: folder that they write their scores to.
    """
    return [
        SubmittedJob(name, kind, arrival, epochs := _EPOCHS[kind] * longer, _document(name, kind, epochs, results))
        for name, arrival in _ARRIVALS
        for kind in [name.split("-")[0]]
    ]


def _document(name: str, kind: str, epochs: int, results: Path) -> str:
    arguments = ["--epochs", str(epochs), "--out", str((results / f"{name}.json").resolve())]
    return elastic_job(name, kind, epochs, ["python", f"examples/{kind}.py"], arguments, most=(4, 3))
