"""Long texts are packed, and come back."""

import pytest

from elastic_ps.core import long_text
from elastic_ps.core.long_text import packed, unpacked


def test_a_short_text_is_sent_as_it_is():
    assert packed('{"blocks":{}}') == unpacked('{"blocks":{}}') == '{"blocks":{}}'


def test_a_long_text_comes_back():
    text = "".join(f'"{number}":{{"offset":{64 * number}}},ü' for number in range(700_000))
    sent = packed(text)
    assert len(sent) < len(text) / 3
    assert unpacked(sent) == text


def test_what_is_damaged_or_too_long_is_an_error(monkeypatch):
    sent = packed("a" * (long_text.LONG + 1))
    for wrong in (sent[:-10], sent[:9] + sent[10:], "zlib:", "zlib:\0"):
        with pytest.raises(ValueError, match=r"."):
            unpacked(wrong)
    monkeypatch.setattr(long_text, "_MOST", 1000)
    with pytest.raises(ValueError, match="of more than 1000 bytes"):
        unpacked(sent)
