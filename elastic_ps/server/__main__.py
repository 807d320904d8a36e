"""This program is a parameter server: `python -m elastic_ps.server --coordinator HOST:PORT --token-file FILE`."""

import argparse
import logging
import os
import secrets
import signal
import sys
import threading
import time
from types import FrameType

from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ElasticError, JobEnded
from elastic_ps.node.leaving import EXIT_TERMINATED, leave_or_save, same_signal_seconds
from elastic_ps.node.session import Session
from elastic_ps.node.settings import MACHINE, NodeSettings
from elastic_ps.server.service import ServerNode
from elastic_ps.system.module_files import module_file
from elastic_ps.system.printable import LogLines, log_to_stderr
from elastic_ps.system.process.file_descriptors import raise_limit
from elastic_ps.system.process.signals import SignalCount
from elastic_ps.transport.choice import TransportName, TransportSettings
from elastic_ps.transport.striped import MOST_SOCKETS

log = logging.getLogger("elastic_ps.server")

_LEAVE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m elastic_ps.server", description=__doc__)
    parser.add_argument("--coordinator", required=True, metavar="HOST:PORT", help="the job's coordinator")
    parser.add_argument("--token-file", required=True, metavar="FILE", help="the job token, as hex digits")
    parser.add_argument("--host", default="127.0.0.1", help="address that peers reach this server at")
    parser.add_argument("--listen", metavar="HOST", help="address to listen on (default: --host)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    names = list(TransportName)
    parser.add_argument("--transport", default=TransportName.AUTO, choices=names, help="of tensors (%(default)s)")
    parser.add_argument(
        "--tcp-sockets",
        type=int,
        default=1,
        choices=range(1, MOST_SOCKETS + 1),
        metavar="N",
        help="of each connection to a new owner",
    )
    parser.add_argument("--nonce", default="", help="the launcher's name for this process")
    parser.add_argument(
        "--optimizer-module",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module that optimizers of one's own and server_command may be loaded from (repeatable)",
    )
    return parser.parse_args()


def main() -> int:
    """Serve until drained, or until the job ends. Returns the exit status (see JobEnded)."""
    arguments = _arguments()
    log_to_stderr(LogLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    try:
        return _serve(arguments)
    except JobEnded as error:
        log.error("%s", error)  # noqa: TRY400  (the message says all)
        return error.status
    except (ElasticError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400
        return 1


def _serve(arguments: argparse.Namespace) -> int:
    raise_limit()
    token = read_token(arguments.token_file)
    nonce = arguments.nonce or secrets.token_hex(8)
    machine = os.environ.get(MACHINE, "")
    modules = {name: module_file(name) for name in arguments.optimizer_module}
    settings = NodeSettings(
        arguments.coordinator, token, arguments.host, nonce, machine=machine, modules=tuple(modules.values())
    )
    transport = TransportSettings(TransportName(arguments.transport), arguments.tcp_sockets).make(token)
    listener = transport.listen(arguments.listen or arguments.host, arguments.port, arguments.host)
    session = Session(settings, Role.SERVER, listener.address[1])
    leave = threading.Event()
    _drain_on_sigterm(leave)
    reply = session.register()
    log.info("node %s", reply.node)
    server = ServerNode(reply.node, reply.block_bytes, session, transport, listener, modules)
    server.start()
    session.run(server)
    threading.Thread(target=_leave, args=(leave, session, server), name="leave", daemon=True).start()
    status = None
    while status is None:
        status = server.wait(1.0)  # in turns: a signal is handled between them
    _deliver_ledger(server, session)
    server.close()
    session.flush(_LEAVE_SECONDS)
    session.close()
    return status


def _deliver_ledger(server: ServerNode, session: Session) -> None:
    """Wait until the coordinator has what this server applied, before it goes: the proof of exactly once needs it."""
    deadline = time.monotonic() + _LEAVE_SECONDS
    while time.monotonic() < deadline:
        session.report_soon()
        with server.state.changed:
            if not server.state.ledger.waiting:
                return
            server.state.changed.wait(_LOOK_SECONDS)
    log.error("%d ledger entries did not reach the coordinator", server.state.ledger.waiting)


def _drain_on_sigterm(leave: threading.Event) -> None:
    """Ask to be drained at the first SIGTERM, and end the process at the second."""
    signals = SignalCount(same_signal_seconds())

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if signals.heard() == 2:
            sys.exit(EXIT_TERMINATED)
        leave.set()

    signal.signal(signal.SIGTERM, handle)


def _leave(wanted: threading.Event, session: Session, server: ServerNode) -> None:
    wanted.wait()
    log.info("SIGTERM: this server asks to be drained; a second SIGTERM ends it at once")
    if why := leave_or_save(session):
        log.warning("%s", why)
        server.end(why, EXIT_TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
