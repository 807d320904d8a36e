"""Which coordinator a command is about: an address that cannot be is refused before the token is read or shown."""

from pathlib import Path

import pytest
import typer

from coordinator.ctl.job_lookup import resolve


@pytest.mark.parametrize("port", ["99999", "65536", "0", "-1", "1e3", "²", "9" * 5000, ""])
def test_a_port_that_there_is_not_is_refused_and_never_wraps_to_another(port: str) -> None:
    with pytest.raises(typer.BadParameter, match="PORT from 1 to 65535"):
        resolve(None, f"localhost:{port}", Path("/nowhere/token"))


def test_a_token_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=f"--token-file {tmp_path}"):
        resolve(None, "localhost:1", tmp_path)
