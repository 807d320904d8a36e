"""Logs that programs read: one JSON object a line."""

import json
import logging
import time


class JsonLines(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`; `job` where the record has one, `exception` where there is one."""

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
    """The message of a line of such a log; another line as it is."""
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return str(found.get("message", line)) if isinstance(found, dict) else line
