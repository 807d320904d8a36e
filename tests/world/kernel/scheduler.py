"""A `Scheduler` runs greenlets in the place of threads: one at a time, in an order drawn from a seed, in virtual time.

Time stands still while anybody can run, and goes on to the next timer when nobody can. What a task does between two
switches is one step that nothing interrupts; it switches where it waits, and with some chance where it takes a lock.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf, log, nextafter
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

RUNS, FROZEN, DEAD = 0, 1, 2
"""The states of a process."""

_MOST_AT_ONCE = 200_000


class Stuck(Exception):
    """The tasks of the world run on and on while its time stands still."""


class Process:
    """A `Process` is what a kill ends and a freeze stops as a whole: its tasks, and its ends of connections.

    Args:
        name: for people, and for links.
        role: "launcher", "coordinator", "server" or "worker".
    """

    def __init__(self, name: str, role: str, number: int):
        self.name, self.role, self.number = name, role, number
        self.state = RUNS
        self.held: list[Task] = []  # its tasks that could run, while it is frozen
        self.later: list[Callable[[], None]] = []  # what its kernel keeps for it meanwhile
        self.ends: dict[Any, None] = {}  # of its connections
        self.ports: set[int] = set()
        self.handlers: dict[int, Any] = {}  # of signals
        self.leaving: list[Callable[[], None]] = []  # what atexit keeps
        self.main: Any = None
        self.links: list[Any] = []  # its connections' queues
        self.failed = False
        self.ahead = 0.0, 0.0  # seconds by which its clocks have jumped: the monotonic one, that of the day
        self.job: Any = None  # of a worker's script
        self.server: Any = None  # a server's state
        self.arguments: list[str] = []
        self.environment: dict[str, str] = {}
        self.exited: Callable[[int], None] = lambda status: None
        self.said: Callable[[bytes], None] = lambda line: None

    def __repr__(self) -> str:
        return self.name


class Task:
    """A `Task` is a greenlet, as a process's thread."""

    __slots__ = ("greenlet", "loop", "parked", "process", "serial", "switch", "thread", "woken")

    def __init__(self, process: Process, thread: Any):
        self.process, self.thread = process, thread
        self.parked = self.woken = False
        self.serial = 0  # how often it has been parked
        self.loop: asyncio.AbstractEventLoop | None = None  # that runs in it
        self.greenlet: greenlet
        self.switch: Callable[[], Any]  # lets it go on


class Scheduler:
    """See the module.

    Args:
        seed: of every order.
        switches: the chance to switch to others where a lock is taken.
        slow: the chance that this takes some time.
    """

    def __init__(self, seed: int, switches: float = 0.0, slow: float = 0.0):
        self.now = 0.0
        self.random = Random(seed)
        self.current: Task | None = None
        self.over = self.stopped = False
        self.steps = 0
        self.uncaught: Callable[[Task, BaseException], None] = lambda task, error: None
        self._switches, self._slow = switches, slow
        self.left = self._draw_left()  # how often `pause` is called before it switches; 0: it never does
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Any, int]] = []
        self._numbers = count()
        self._tasks: list[Task] = []
        self._due: Task | None = None  # begins
        self._idle = 0  # steps since time has passed
        self._chance = self.random.random
        self._hub = getcurrent()

    # ---- for tasks ---------------------------------------------------------------------------------------------------

    def spawn(self, process: Process, body: Callable[[], None], thread: Any = None) -> Task:
        """Start a task; it runs when its turn comes."""
        task = Task(process, thread)

        def run() -> None:
            try:
                body()
            except GreenletExit:
                pass
            except BaseException as error:  # noqa: BLE001  # the world is told
                if not self.over:
                    self.uncaught(task, error)

        task.greenlet = greenlet(run, self._hub)
        task.switch = task.greenlet.switch
        self._tasks.append(task)
        self._ready.append(task)
        return task

    def park(self, timeout: float | None = None) -> bool:
        """Let others run until `wake`, `timeout` seconds at most; return whether it was `wake`."""
        if self.over:
            raise GreenletExit
        task = self.current
        assert task is not None, "only a task can wait"
        task.serial += 1
        task.parked, task.woken = True, False
        if timeout is not None:
            until = max(self.now + timeout, nextafter(self.now, inf)) if timeout > 0 else self.now
            heappush(self._timers, (until, next(self._numbers), task, task.serial))
        if task.loop is not None:
            self._switch(task)
            return task.woken
        self._let_others()
        if self.over:
            raise GreenletExit
        return task.woken

    def pause(self) -> None:
        """Let others run, with some chance: a thread may lose its core anywhere."""
        if self.left > 1:
            self.left -= 1
        elif self.left:
            self.left = self._draw_left()
            task = self.current
            if task is None or self.over:
                return
            if self._slow and self.random.random() < self._slow:
                self.park(self.random.random() * 0.02)
                return
            self._ready.append(task)
            self._switch(task)

    def _draw_left(self) -> int:
        """Draw once what a draw at each call would come to."""
        if not self._switches:
            return 0
        return 1 + int(log(1.0 - self.random.random()) / log(1.0 - self._switches))

    def _switch(self, task: Task) -> None:
        if task.loop is None:
            self._let_others()
        else:  # which loop runs is known by thread, and all tasks share one
            asyncio._set_running_loop(None)
            self._let_others()
            asyncio._set_running_loop(task.loop)
        if self.over:
            raise GreenletExit

    def wake(self, task: Task) -> bool:
        """Let a parked task go on; return whether it was parked."""
        if not task.parked:
            return False
        task.parked, task.woken = False, True
        self._ready.append(task)
        return True

    def call_at(self, when: float, act: Callable[[], None]) -> None:
        """Call something at a time, in nobody's name; it must not wait."""
        heappush(self._timers, (when if when > self.now else self.now, next(self._numbers), act, -1))

    # ---- for the world -----------------------------------------------------------------------------------------------

    def freeze(self, process: Process) -> None:
        """Stop a process (SIGSTOP)."""
        if process.state == RUNS:
            process.state = FROZEN

    def thaw(self, process: Process) -> None:
        """Let a process go on (SIGCONT)."""
        if process.state == FROZEN:
            process.state = RUNS
            self._ready += process.held
            process.held = []
            later, process.later = process.later, []
            for act in later:
                act()

    def run(self) -> None:
        """Run until somebody sets `stopped`, or until nobody can run any more.

        Raises:
            Stuck: see there.
        """
        while (task := self._due or self._next()) is not None:
            self._due = None
            task.switch()  # returns when a task has ended, or finds nobody who could go on
        self.current = None

    def _let_others(self) -> None:
        """Go on with whose turn it is, which need not be another's; return when it is the present task's."""
        mine = self.current
        try:
            task = self._next()
        except BaseException as error:  # noqa: BLE001  # it is not this task's: it ends the world
            self._hub.throw(error)
            return
        if task is mine:
            return
        if task is None or not task.greenlet:  # one that begins does so on an empty stack: what lies there is copied
            self._due = task
            self._hub.switch()
        else:
            task.switch()

    def _next(self) -> Task | None:
        """Return whose turn it is, after time has passed where it has to; None: the world ends. Raises Stuck."""
        ready = self._ready
        while not self.stopped:
            if not ready:
                self._idle = 0
                self.current = None
                if not self._fire():
                    break
                continue
            self._idle += 1
            if self._idle > _MOST_AT_ONCE:
                raise Stuck(f"tasks run on and on at {self.now:.3f} s, the last {self.current and self.current.thread}")
            if len(ready) > 1:
                at = int(self._chance() * len(ready))
                ready[at], ready[-1] = ready[-1], ready[at]
            task = ready.pop()
            if task.process.state:
                if task.process.state == FROZEN:
                    task.process.held.append(task)
                continue
            self.current = task
            self.steps += 1
            return task
        return None

    def _fire(self) -> bool:
        """Go on to the next time at which something happens; return False where there is none."""
        timers = self._timers
        if not timers:
            return False
        self.now = now = timers[0][0]
        while timers and timers[0][0] <= now:
            _, _, target, serial = heappop(timers)
            if serial < 0:
                target()
            elif target.parked and target.serial == serial:
                target.parked = False
                self._ready.append(target)
        return True

    def threads(self) -> Counter[Process]:
        """Return how many threads each process has that lives."""
        self._tasks = [task for task in self._tasks if not task.greenlet.dead]
        return Counter(task.process for task in self._tasks if task.process.state != DEAD)

    def end(self) -> None:
        """End every task that is left: none of them goes on in the next world."""
        self.over = True
        for task in self._tasks:
            self.current = task
            if task.greenlet:
                task.greenlet.throw(GreenletExit)
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()
        self.current = None
