"""This module is the forecaster's program: told of slots, it forecasts when the cluster's jobs start and end.

    python -m dl2_scheduler.forecasts.program FOLDER RULE

FOLDER is the cluster's, RULE a `NodeRule`. It is told the numbers of slots, and says lines that are `SlotForecasts`, or
{"slot": 3, "error": why it could not}.
"""

import sys
from contextlib import closing
from pathlib import Path

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.forecasts.forecaster import Forecaster, as_line
from dl2_scheduler.forecasts.records import FORECASTS_FILE, ForecastRecords
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import answer_slots, be_nice
from dl2_scheduler.world_model.bounded_policy import make_bounded_policy
from elastic_ps.system.printable import LogLines, log_to_stderr

_SECONDS, _PART = 10.0, 0.25  # of computing for the forecasts of a slot, at most: in seconds, and of the slot


def main() -> None:
    """Run the program; see the module."""
    be_nice()
    log_to_stderr(LogLines())
    folder, rule = Path(sys.argv[1]), NodeRule(int(sys.argv[2]))
    with closing(History.of_folder(folder)) as history, closing(ForecastRecords(folder / FORECASTS_FILE)) as records:
        forecaster = Forecaster(history, rule, records, make_bounded_policy)

        def answer(seconds: float) -> str | None:
            found = forecaster.forecast(seconds)
            return None if found is None else as_line(found)

        answer_slots(answer, lambda: forecaster.observed.slot_seconds, _SECONDS, _PART)


if __name__ == "__main__":
    main()
