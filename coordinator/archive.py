"""An archive tells from an ended job's folder what there was: its plans, its ledger, the times of its steps."""

from dataclasses import dataclass
from pathlib import Path

from coordinator.server import status_view
from coordinator.server.journal import Journal
from coordinator.server.ledger_files import Ledger, Steps
from protos import elastic_pb2 as pb


@dataclass(frozen=True)
class Archive:
    """An archive holds what an ended job's folder told when it was read.

    Attributes:
        plans: that have ended, oldest first.
        ledger: every applied update; those that a restore took back are marked.
        steps: the time of every step at every worker.
    """

    plans: tuple[pb.Plan, ...]
    ledger: tuple[pb.LedgerEntry, ...]
    steps: tuple[pb.StepRow, ...]


def read_archive(folder: Path) -> Archive:
    """Read a job's folder.

    Args:
        folder: of a job whose coordinator has ended.

    Raises:
        JournalError: the job still runs, or the journal is not readable.
        FileNotFoundError: no job has run here.
    """
    if not (folder / "journal.sqlite").exists():
        raise FileNotFoundError(f"{folder} holds no journal: no job has run here")
    journal = Journal(folder / "journal.sqlite")
    try:
        loaded = journal.load()
    finally:
        journal.close()
    job, plans = loaded[:2] if loaded is not None else (None, ())
    ledger, steps = Ledger(folder / "ledger.jsonl"), Steps(folder / "steps.jsonl")
    try:
        ledger.load()
        return Archive(
            tuple(status_view.plan(plan) for plan in plans),
            tuple(ledger.entries(job.voids if job else ())),
            tuple(steps.rows()),
        )
    finally:
        ledger.close()
        steps.close()
