"""Histories are gone through slot by slot: one may have more slots than memory."""

import weakref

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.live.history import HISTORY_FILE, History
from tests.dl2_scheduler.replay.test_measured import slot

SLOTS, MOST = 2000, 200


class Alive:
    """Slots of a long history, of which is counted how many are held at once."""

    def __init__(self):
        self.most, self.read, self._alive = 0, 0, 0

    def _gone(self):
        self._alive -= 1

    def slots(self, history, after=-1):
        self.read += 1
        for number in range(SLOTS):
            found = slot(number, 0.004 * number, 0.004)
            for part in (found, found.snapshot, found.outcome):
                weakref.finalize(part, self._gone)
                self._alive += 1
            self.most = max(self.most, self._alive)
            yield found


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        (("fit", "--folder", "{0}", "--out", "{0}/speeds.csv", "--trace", "{0}/jobs.jsonl"), 2),
        (("simulate", "--from-history", "{0}"), 2),
        (("simulate", "--from-history", "{0}", "--policy", "fifo", "--json"), 2),
    ],
)
def test_no_command_holds_a_whole_history(tmp_path, monkeypatch, command, reads):
    History(tmp_path / HISTORY_FILE).close()
    alive = Alive()
    monkeypatch.setattr(History, "slots", lambda history, after=-1: alive.slots(history, after))
    done = CliRunner().invoke(app, [word.format(tmp_path) for word in command])
    assert done.exit_code == 0, done.output
    assert alive.most < MOST
    assert alive.read == reads
