"""The job's token in its file."""

from pathlib import Path

import pytest

from elastic_ps.control.token import TOKEN_BYTES, read_token
from elastic_ps.core.errors import ConfigurationError


def test_a_token_is_read_from_hex_digits(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0f" * TOKEN_BYTES + "\n")
    assert read_token(path) == read_token(str(path)) == b"\x0f" * TOKEN_BYTES


@pytest.mark.parametrize(
    ("text", "message"),
    [("secret", "cannot read the job token from .*token"), ("00" * 15, "has 15 bytes, not 16"), ("", "has 0 bytes")],
)
def test_what_is_not_a_token_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_token(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the job token from .*nowhere"):
        read_token(tmp_path / "nowhere")
