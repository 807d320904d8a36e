"""Stand-in for any process of a job: `python puppet.py PORT NAME` does what the test tells it on a loopback socket.

Lines it takes: `say TEXT`, `exit STATUS`, `child` (starts one that never ends and says its
pid). What it answers: its name and pid first, then one line for each command, `term` for each SIGTERM, `end` for each
signal by which a launcher ends its coordinator.
"""

import os
import signal
import socket
import subprocess
import sys


def main() -> None:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

    def answer(text: str) -> None:
        connection.sendall(f"{text}\n".encode())

    for number, word in ((signal.SIGTERM, "term"), (signal.SIGUSR1, "end")):
        signal.signal(number, lambda _number, _frame, word=word: answer(word))
    environment = ",".join(f"{name}={os.environ.get(name, '')}" for name in sys.argv[3:])
    answer(f"{sys.argv[2]} {os.getpid()} {environment}")
    for line in connection.makefile():
        word, _, rest = line.strip().partition(" ")
        if word == "say":
            print(rest, flush=True)
            answer("said")
        elif word == "child":
            child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
            answer(f"{child.pid}")
        elif word == "exit":
            os._exit(int(rest))


if __name__ == "__main__":
    main()
