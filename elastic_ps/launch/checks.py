"""This module refuses what cannot be in the options of `elasticrun`.

Each check returns what is wrong, for people, or None. They run before anything is started, and without running a line
of the user's code.
"""

import errno
import os
import shlex
import shutil
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from elastic_ps.control.channels import is_address
from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError, NotNow, StorageError
from elastic_ps.core.model import ALIGNMENT
from elastic_ps.system import storage
from elastic_ps.system.module_files import find, hiding_ours
from elastic_ps.system.passing_errors import MACHINE_LACKS
from elastic_ps.transport.tcp import address_of, listening_socket

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
    """Check --host: it is one address; where `listens`, of this machine."""
    try:
        address = _address(host)
        if listens:
            listening_socket(host, 0).close()
    except (OSError, UnicodeError) as error:
        return f"--host {host}: {error}; give an address of this machine"
    if address.is_unspecified:
        return f"--host {host}: that is all addresses; give the one that other nodes reach this machine at"
    return None


def only_here(host: str) -> str | None:
    """Say where --host is a name that other machines know and this one takes for itself alone, or None.

    Debian writes 127.0.1.1 for a machine's own name into /etc/hosts: what listens there is reached by nobody else.
    """
    address = _address(host)
    if not address.is_loopback or host == str(address) or "localhost" in host:
        return None
    return f"--host {host} is {address} here, which no other machine reaches: give this machine's address"


def remote_problem(host: str, coordinator: str) -> str | None:
    """Check --host of a node that listens: its job's coordinator is on this machine, or its nodes can reach it."""
    if not _address(host).is_loopback:
        return None
    with suppress(OSError, ValueError):  # a coordinator whose name nobody knows is told of when it is asked
        at = _address(coordinator.rpartition(":")[0].strip("[]"))
        if at.is_loopback:
            return None
        if told := only_here(host):
            return told
        if not _is_own(str(at)):
            away = f"--host {host}: no other machine reaches that, and the job's coordinator is on another"
            return f"{away}: give this machine's address"
    return None


def _is_own(address: str) -> bool:
    """Return whether an address is one of this machine: what is not cannot be listened at."""
    try:
        listening_socket(address, 0).close()
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def _address(host: str) -> IPv4Address | IPv6Address:
    return ip_address(address_of(host)[1].partition("%")[0])


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
    unreadable: StorageError | None = None  # one may be another user's
    try:
        for folder in storage.candidates(url):
            try:
                if storage.is_complete(folder):
                    return None
            except StorageError as error:
                unreadable = unreadable or error
    except FileNotFoundError:
        pass
    except StorageError as error:
        unreadable = error
    if unreadable is not None:
        return f"--restore {url}: no checkpoint can be read there: {unreadable}"
    return f"--restore {url}: no checkpoint there"


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
