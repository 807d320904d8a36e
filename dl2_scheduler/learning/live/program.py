"""The learner's program: told of slots, it learns from those that have ended, and says when weights are written.

    python -m dl2_scheduler.learning.live.program RUN FOLDER RULE

RUN is the run's folder, FOLDER the cluster's, RULE a `NodeRule`. It says lines {"updates": 7, "slot": 12} with losses,
or {"error": why it does not learn}, and then ends. `RUN/before-live/` keeps the run as it was before the first update.
"""

import json
import logging
import shutil
import sys
from contextlib import closing
from pathlib import Path

import torch

from dl2_scheduler.cluster.errors import SchedulerError
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.live.learner import LiveLearner
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import be_nice, told
from elastic_ps.system.printable import LogLines, log_to_stderr

log = logging.getLogger(__name__)

_BEFORE = "before-live"


def learn(run: Path, folder: Path, rule: NodeRule) -> None:
    """Learn whenever there is something to learn from, until nobody tells any more.

    Args:
        run: folder of the policy that learns.
        folder: of the scheduler, with its history.
        rule: by which tasks find their node.

    Raises:
        SchedulerError: it cannot.
    """
    run_folder = RunFolder(run)
    with run_folder.held(), closing(History.of_folder(folder)) as history:
        learner = LiveLearner(run_folder, history, str(folder.absolute()), rule)
        if not learner.updates:
            keep(run)
        for _ in told():
            while (numbers := learner.update()) is not None:
                learner.save()
                print(json.dumps({"updates": learner.updates, "slot": learner.slot, **numbers}), flush=True)


def keep(run: Path) -> None:
    """Copy a run's settings, checkpoint and policy, once."""
    before = run / _BEFORE
    if before.exists():
        return
    partial = run / f"{_BEFORE}.partial"
    partial.mkdir(exist_ok=True)
    for name in ("settings.json", "checkpoint.pt", "policy.npz"):
        shutil.copy2(run / name, partial / name)
    partial.rename(before)


def main() -> None:
    """See the module."""
    be_nice()
    torch.set_num_threads(1)
    log_to_stderr(LogLines())
    run, folder, rule = sys.argv[1:]
    try:
        learn(Path(run), Path(folder), NodeRule(int(rule)))
    except (SchedulerError, OSError) as error:
        log.exception("it does not learn")
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
