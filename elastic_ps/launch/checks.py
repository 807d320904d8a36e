"""This module refuses what cannot be in the options of `elasticrun`.

Each check returns what is wrong, for people, or None. They run before anything is started, and without running a line
of the user's code.
"""

import os
import shlex
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

from elastic_ps.control.channels import is_address
from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError, NotNow, StorageError
from elastic_ps.core.model import ALIGNMENT
from elastic_ps.system import storage
from elastic_ps.system.module_files import find, hiding_ours
from elastic_ps.system.passing_errors import MACHINE_LACKS

MOST_SECONDS = 30 * 86_400.0
"""The most seconds that any option may have: thirty days."""


def script_problem(script: str, module: bool, role: Role | None) -> str | None:
    """Check the training script: it is there, where one is needed.

    Args:
        script: as it was given.
        module: it is a module's name.
        role: of the one node to start; None: a whole job.
    """
    if role is Role.SERVER:
        return f"a server runs no script: leave {script!r} out" if script else None
    if not script:
        return "name the training script: elasticrun [OPTIONS] train.py [ARGUMENTS]"
    if module:
        return None if find(script) is not None else f"no module {script!r} can be found from here{_a_file(script)}"
    if os.path.isdir(script):
        return f"{script!r} is a folder; name a script in it"
    if not os.path.isfile(script):  # a name may be too long for a file's
        return f"no script {script!r} here" + ("" if script.endswith(".py") else " (a module is run with -m)")
    return None


def _a_file(module: str) -> str:
    return "; a file is run without -m" if module.endswith(".py") or os.sep in module else ""


def hidden_problem(script: str, module: bool) -> str | None:
    """Check what is beside the training script: nothing has the name of a package of ours; "": no script.

    Args:
        script: as it was given.
        module: it is a module's name.
    """
    place = hiding_ours("" if module else os.path.dirname(os.path.realpath(script))) if script else None
    if place is None:
        return None
    return f"workers would import {place} in the place of a package of elasticrun's: give it another name"


def modules_problem(modules: Iterable[str]) -> str | None:
    """Check --optimizer-module: servers can find each."""
    for module in modules:
        if find(module) is None:
            return f"--optimizer-module {module}: no such module can be found from here"
    return None


def seconds_problem(**options: float | None) -> str | None:
    """Check durations, by option: each is positive, and no longer than anything lasts."""
    for name, value in options.items():
        if value is not None and not 0 < value <= MOST_SECONDS:
            return f"--{name.replace('_', '-')} {value:g}: must be more than 0 seconds, and at most {MOST_SECONDS:,.0f}"
    return None


def block_problem(block_bytes: int | None) -> str | None:
    """Check --block-bytes: it is a multiple of the alignment."""
    if block_bytes is None or block_bytes % ALIGNMENT == 0:
        return None
    return f"--block-bytes {block_bytes}: must be a multiple of {ALIGNMENT}"


def address_problem(address: str) -> str | None:
    """Check --coordinator: it is HOST:PORT."""
    if is_address(address):
        return None
    return f"--coordinator {address!r}: give HOST:PORT, PORT from 1 to 65535; an IPv6 address as [::1]:PORT"


def token_problem(token_file: Path) -> str | None:
    """Check --token-file: it holds a token."""
    try:
        read_token(token_file)
    except ConfigurationError as error:
        return f"--token-file {token_file}: {error}"
    return None


def host_problem(host: str, listens: bool) -> str | None:
    """Check --host: it is an address; where `listens`, one of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        if listens:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except (OSError, UnicodeError) as error:
        return f"--host {host}: {error}; give an address of this machine"
    return None


def checkpoint_problem(url: str) -> str | None:
    """Check --checkpoint: programs for its storage are there, and the folder can be written; "": the default.

    Raises:
        NotNow: it cannot be written at present.
    """
    try:
        storage.check_protocol(url)
        if url:
            storage.check_writable(url)
    except (ValueError, ImportError, OSError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE_LACKS:
            raise NotNow(f"--checkpoint {url}: {error}") from error
        return f"--checkpoint {url}: {error}"
    return None


def restore_problem(url: str) -> str | None:
    """Check --restore: it is a checkpoint, or a folder of some; "": none. Whether one is whole is not checked."""
    if not url:
        return None
    try:
        found = any(storage.is_complete(folder) for folder in storage.candidates(url))
    except FileNotFoundError:
        found = False
    except StorageError as error:
        return f"--restore {url}: no checkpoint can be read there: {error}"
    return None if found else f"--restore {url}: no checkpoint there"


def identity_problem(identity: str) -> str | None:
    """Check --identity: it can be part of a folder's name; "": a new one."""
    if not identity or storage.IDENTITY.fullmatch(identity):
        return None
    return f"--identity {identity!r}: give up to 100 letters, digits, '.', '_' and '-', a letter or digit first"


def wrap_problem(option: str, command: str) -> str | None:
    """Check --wrap-worker or --wrap-server: there is such a program; "": none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"{option} {command!r}: {error}: give words as in a shell"
    if words and shutil.which(words[0]) is None:
        return f"{option}: no program {words[0]} can be found"
    return None
