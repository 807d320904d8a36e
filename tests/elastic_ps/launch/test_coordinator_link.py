"""When a launcher takes its coordinator for frozen."""

import queue
from typing import Any

import grpc
import pytest

from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.launch import coordinator_link
from elastic_ps.launch.coordinator_link import CoordinatorLink

PAUSE = 0.01


class Away(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def test_what_an_earlier_coordinator_has_not_answered_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_link, "_HEALTH_SECONDS", PAUSE)
    link = CoordinatorLink("127.0.0.1:1", b"t" * TOKEN_BYTES)
    asked: list[int] = []
    told: queue.SimpleQueue[tuple[float, int, int]] = queue.SimpleQueue()

    def status(*_: Any, **__: Any) -> None:
        asked.append(1)
        if len(asked) <= 5:
            link.begin_anew()
        raise Away

    monkeypatch.setattr(link._stub, "Status", status)
    try:
        link.watch(3 * PAUSE, lambda seconds, which: told.put((seconds, which, len(asked))))
        _, which, questions = told.get(timeout=20)
        assert (which, questions) == (5, 8)
    finally:
        link.close()
