"""An error that nobody foresaw is a sentence, unless its traceback is asked for."""

import pytest

from elastic_ps.system.last_resort import TRACEBACK, one_sentence


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyError("a\n\x1bb"), "this should not happen (KeyError: 'a\\n\\x1bb')"),
        (RecursionError("deep"), "this should not happen (RecursionError: deep)"),
        (MemoryError(), "there is not enough memory for this: give smaller files or numbers"),
    ],
)
def test_one_sentence(error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, one_sentence("dl2", {}):
        raise error
    lines = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"dl2: {sentence}")


def test_its_traceback() -> None:
    with pytest.raises(KeyError), one_sentence("dl2", {TRACEBACK: "1"}):
        raise KeyError("a")
