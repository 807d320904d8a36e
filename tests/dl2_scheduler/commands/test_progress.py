"""What commands show of their progress where there is no terminal."""

import re
import time

from dl2_scheduler.commands.progress import Lines, new_progress


def test_without_a_terminal_there_are_lines():
    assert isinstance(new_progress(), Lines)


def test_a_line_comes_at_each_part_and_again_while_it_lasts(capsys):
    printed = ""
    with Lines(every=0.01) as lines:
        lines.tell("imitation", 1, 3, {"loss": 0.25, "jct": float("nan")})
        until = time.monotonic() + 20
        while printed.count("\n") < 3 and time.monotonic() < until:
            printed += capsys.readouterr().err
            time.sleep(0.01)
        lines.tell("teacher and policy are judged", 0, 1, {})
    first, second, *_ = (printed + capsys.readouterr().err).splitlines()
    assert re.fullmatch(r"\d+ s: imitation: 1 of 3 loss 0.25", first)
    assert re.fullmatch(r"\d+ s: imitation: 1 of 3 loss 0.25", second)


def test_a_part_that_goes_on_is_no_new_line(capsys):
    with Lines(every=600.0) as lines:
        for done in range(3):
            lines.tell("imitation", done, 3, {})
        lines.tell("judging", 0, 1, {})
    assert [line.split(": ", 1)[1] for line in capsys.readouterr().err.splitlines()] == [
        "imitation: 0 of 3",
        "judging: 0 of 1",
    ]
