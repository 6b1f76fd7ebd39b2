"""Logging as hosts expect it: JSON lines on standard error."""

import json
import logging
import sys
import time

_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error", logging.CRITICAL: "error"}
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Handler(logging.StreamHandler):
    """Writes a record as one line; what was given as extra becomes values of it."""

    def format(self, record):
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        line = {
            "@timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "@level": _LEVELS.get(record.levelno, "info"),
            "@message": text,
        }
        for key, value in vars(record).items():
            if key not in _OWN:
                line[key] = value
        return json.dumps(line, default=str)


def start():
    """Makes the root logger write to the host."""
    root = logging.getLogger()
    root.handlers = [Handler(sys.stderr)]
    root.setLevel(logging.INFO)


def level_of(slog):
    """The level of Python's logging for one of Go's log/slog."""
    for go, python in ((8, logging.ERROR), (4, logging.WARNING), (0, logging.INFO)):
        if slog >= go:
            return python
    return logging.DEBUG
