"""This module writes logs that programs read: one JSON object a line."""

import json
import logging
import time


class JsonLines(logging.Formatter):
    """A `JsonLines` writes `time` (UTC), `level`, `logger`, `message`; `job` and `exception` where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        found = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (job := getattr(record, "job", None)) is not None:
            found["job"] = job
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)


def plain(line: str) -> str:
    """Return the message of a line of such a log; return another line as it is."""
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return str(found.get("message", line)) if isinstance(found, dict) else line
