"""Logs of one JSON object a line."""

import json
import logging
import sys

import pytest

from elastic_ps.system.jsonlog import JsonLines, plain


def record(**more):
    found = logging.LogRecord("dl2", logging.INFO, "x.py", 1, "it %s\nand %d", ("runs", 3), None)
    found.created, found.msecs = 1_700_000_000.5, 500.0
    found.__dict__.update(more)
    return found


def test_a_line_is_an_object_with_its_job():
    line = JsonLines().format(record(job="ns/digits"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "info",
        "logger": "dl2",
        "message": "it runs\nand 3",
        "job": "ns/digits",
    }


def test_an_exception_is_part_of_its_line():
    try:
        raise ValueError("so")
    except ValueError:
        line = JsonLines().format(record(exc_info=sys.exc_info()))
    assert "ValueError: so" in json.loads(line)["exception"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (JsonLines().format(record()), "it runs\nand 3"),
        ("coordinator: no such file", "coordinator: no such file"),
        ("3", "3"),
        ("{", "{"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_the_message_of_a_line(line, message):
    assert plain(line) == message
