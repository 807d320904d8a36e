"""What a seed draws: a job, what its operator asks for, and the faults that it meets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from tests.world.faults.cells import (
    BROKEN,
    DEATH,
    DELAY,
    DROP,
    FILLING,
    FREEZE,
    FULL,
    LAUNCHER,
    MOVERS,
    MOVING,
    OPERATOR,
    PLAN_PHASES,
    REST,
    RESTORE,
    ROWS,
    SERVERLESS_PHASES,
    SERVERLESS_ROWS,
)
from tests.world.faults.job_draw import (
    APART,
    ASYNC,
    AT_ONCE,
    BY_STEP,
    BY_UPDATES,
    COMBINED,
    DROPPED,
    FOR_EVER,
    OVERLAPPED,
    SHORT,
    WRAPPED,
    Fault,
    JobDraw,
)
from tests.world.gradients import BRAIN, DENSE, EXACT, HALF, INFINITE, KINDS


def calm(seed: int, **fields: object) -> JobDraw:
    """Return a job to which nothing happens."""
    return JobDraw(seed, **fields)  # type: ignore[arg-type]


_LEASES = (2.0, 3.0, 5.0)
_LATENCIES = (0.0005, 0.01), (0.005, 0.03), (0.02, 0.08)
_PACES = (0.01, 0.1), (0.1, 0.4), (0.02, 0.5)
_SHORT_PACE = 0.001, 0.01
_SHARING_SEEDS = 300
"""From this seed on jobs may share memory: what smaller ones have found stands."""

_MOVERS_SEEDS = 10_000
"""From this seed on connections between servers are met more often where they are rare."""

_DEEP_SEEDS = 20_000
"""From this seed on faults also come late in plans of deaths and of first followers, which are over soon."""

_NORM_SEEDS = 30_000
"""From this seed on servers may wait for the norm of all gradients."""

_SERVERLESS_SEEDS = 40_000
"""From this seed on every fourth job has no servers."""

_FOLLOWING_SEEDS = 730_000
"""From this seed on workers that join a job without servers may follow a member, and it may have checkpoints."""

_OVERFLOWING_SEEDS = 750_000
"""From this seed on gradients overflow in some epochs of half of the jobs that wait for their norm."""

_ROUNDING_SEEDS = 760_000
"""From this seed on gradients of half of the jobs without servers travel rounded."""

_MEETING_SEEDS = 800_000
"""From this seed on half of the jobs with servers have barriers in their scripts."""

_STORES_SEEDS = 810_000
"""From this seed on scripts of jobs with servers may have two key stores, and send gradients early."""

_KEEPING_SEEDS = 830_000
"""From this seed on some jobs keep more for their scripts than values (states, statistics, new tensors)."""

_COURSE_SEEDS = 1_000_000
"""From this seed on samples make no whole batches, tensors are left out of some steps, and rates change."""

_DEPTHS = {DEATH: ("", "ASSIGNED", "ARMED"), FILLING: ("", "SYNCING", "ARMED", "ARMED")}


def drawn(seed: int, faults: int = 10) -> JobDraw:
    """Return what a seed draws.

    Args:
        seed: of everything.
        faults: that the job meets; what its operator asks for comes beside them.
    """
    if seed >= _SERVERLESS_SEEDS and Random(f"serverless {seed}").random() < 1 / 4:
        return serverless(seed, faults)
    random = Random(f"job {seed}")
    replicas = int(random.random() < 0.6)
    apart = bool(replicas) and random.random() < 0.5
    mode = random.choice(("sync", "sync", "async", "ssp"))
    lease = random.choice(_LEASES)
    draw = JobDraw(
        seed,
        mode=mode,
        workers=random.randint(1, 3),
        servers=random.randint(1 + replicas, 3 + replicas),
        batch=random.choice((4, 8)) if mode != "sync" else 8,
        epochs=20 if mode == "sync" else 16,
        tensors=random.randint(1, 3),
        staleness=random.randint(1, 4) if mode == "ssp" else 0,
        block_bytes=random.choice((64, 64, 128, 1024)),
        migration=random.choice(("live", "live", "pause")),
        lease=lease,
        checkpoint_interval=random.choice((0.5, 1.0, 2.0)),
        latency=random.choice(_LATENCIES),
        pace=random.choice(_PACES),
        room=random.choice((1 << 16, 4096, 512)),
        switches=random.choice((0.0, 0.02, 0.1)),
        slow=random.choice((0.0, 0.1, 0.3)),
        gradients=Random(f"gradients {seed}").choice((DENSE, DENSE, *KINDS)),
        replicas=replicas,
        apart=apart,
        faults=tuple(_faults(random, faults, lease, partial(_phases, seed, bool(replicas), apart), replicas)),
    )
    if seed >= _NORM_SEEDS and mode == "sync":
        draw = replace(draw, norm=Random(f"norm {seed}").random() < 0.4)
    draw = _overflowing(draw)
    if seed >= _MEETING_SEEDS:
        draw = replace(draw, meets=Random(f"meets {seed}").random() < 0.5)
    if seed >= _STORES_SEEDS:
        more = Random(f"stores {seed}")
        draw = replace(draw, tensors=draw.tensors + 1, early=more.random() < 0.5, stores=more.choice((1, 2)))
    if seed >= _KEEPING_SEEDS:
        draw = _keeping(draw, Random(f"keeping {seed}"))
    if seed >= _COURSE_SEEDS:
        draw = _shaped(_coursing(draw, Random(f"course {seed}")), Random(f"shapes {seed}"))
        draw = _static(draw) if Random(f"static {seed}").random() < 0.1 else draw
    if seed >= _DEEP_SEEDS:
        draw = _deep(draw, Random(f"depths {seed}"))
    return _sharing(draw, Random(f"hosts {seed}")) if seed >= _SHARING_SEEDS else draw


def serverless(seed: int, faults: int = 10) -> JobDraw:
    """Return what a seed draws where its job has no servers; see `drawn`."""
    random = Random(f"serverless job {seed}")
    lease = random.choice(_LEASES)
    latency, pace = random.choice(_LATENCIES), random.choice((*_PACES, _SHORT_PACE))
    draw = JobDraw(
        seed,
        workers=random.randint(1, 4),
        servers=0,
        epochs=20,
        tensors=random.randint(1, 3),
        lease=lease,
        latency=latency,
        pace=pace,
        switches=random.choice((0.0, 0.02, 0.1)),
        slow=random.choice((0.0, 0.1, 0.3)),
        norm=Random(f"norm {seed}").random() < 0.4,
        serverless=True,
        saves=False,
    )
    if seed >= _FOLLOWING_SEEDS:
        more = Random(f"follows {seed}")
        draw = replace(draw, follows=more.random() < 0.7, saves=more.random() < 0.5)
        draw = replace(draw, checkpoint_interval=more.choice((0.5, 1.0, 2.0)))
    if seed >= _ROUNDING_SEEDS:
        draw = replace(draw, gradients=Random(f"gradients {seed}").choice((DENSE, DENSE, HALF, BRAIN)))
    draw = _overflowing(draw)
    if seed >= _KEEPING_SEEDS:
        more = Random(f"keeping {seed}")
        draw = replace(draw, statistic=more.random() < 0.5, breaks=more.random() < 0.3)
    if seed >= _COURSE_SEEDS:
        draw = _coursing(draw, Random(f"course {seed}"))
    found = _faults(random, faults, lease, lambda role: SERVERLESS_PHASES, 0, SERVERLESS_ROWS)
    return replace(draw, faults=tuple(replace(fault, servers=0) for fault in found))


DRAWS: dict[str, Callable[[int, int], JobDraw]] = {"": drawn, "all-reduce": serverless}
"""By the mode that all jobs are to have; "": the seed draws it."""


def _overflowing(draw: JobDraw) -> JobDraw:
    random = Random(f"overflows {draw.seed}")
    may = draw.seed >= _OVERFLOWING_SEEDS and draw.norm and draw.gradients in INFINITE
    if not may or random.random() < 0.5:
        return draw
    return replace(draw, overflows=frozenset(random.sample(range(draw.epochs), random.randint(1, 4))))


def _keeping(draw: JobDraw, random: Random) -> JobDraw:
    return replace(
        draw,
        adaptive=random.random() < 0.5,
        statistic=random.random() < 0.3,
        collects=random.random() < 0.3,
        grows=_grows(draw, Random(f"grows {draw.seed}") if draw.mode == "ssp" else random),
        commands=random.random() < 0.3,
        way=AT_ONCE if draw.early else random.choice((AT_ONCE, APART, COMBINED, OVERLAPPED)),
        breaks=not draw.meets and random.random() < 0.3,
    )


def _grows(draw: JobDraw, random: Random) -> int:
    """Return from which epoch on there is one more tensor, which was not drawn for ssp jobs at first; 0: never."""
    return random.randrange(1, draw.epochs) if random.random() < 0.3 else 0


def _coursing(draw: JobDraw, random: Random) -> JobDraw:
    if random.random() < 0.5:
        sizes = [(8, 40), (8, 41), (8, 42), (8, 44), (2, 13)] if draw.mode == "sync" else [(4, 41), (4, 42), (8, 41)]
        batch, samples = random.choice(sizes)
        draw = replace(draw, batch=batch, samples=samples, last=random.choice((SHORT, SHORT, DROPPED, WRAPPED)))
    schedules = ("", BY_STEP) if draw.serverless else ("", BY_UPDATES, BY_STEP)
    return replace(
        draw,
        given=random.random() < 0.3,
        mean=draw.gradients in EXACT and random.random() < 0.3,
        freezes=random.choice((0, 0, 1, 3, 8)),
        schedule=random.choice(schedules) if draw.mode == "sync" else "",
        spare_epochs=random.choice((0, 0, 1, 5)),
        evaluates=random.random() < 0.3,
        lingers=random.choice((0.0, 0.0, 1.0, 6.0, 12.0)),
        retransmits=True,
        preloads=draw.mode == "sync" and not draw.serverless and random.random() < 0.3,
    )


def _static(draw: JobDraw) -> JobDraw:
    """Return a job whose script draws its own batches, and whose operator asks for servers alone."""
    mode = ASYNC if draw.mode == ASYNC else "sync"
    faults = tuple(replace(fault, workers=draw.workers) for fault in draw.faults)
    plain = JobDraw(draw.seed, mode=mode, static=True, workers=draw.workers, epochs=10, faults=faults)
    kept = "servers", "tensors", "block_bytes", "migration", "lease", "checkpoint_interval", "latency", "pace", "room"
    more = "switches", "slow", "replicas", "apart", "retransmits"
    return replace(plain, **{name: getattr(draw, name) for name in (*kept, *more)})


def _shaped(draw: JobDraw, random: Random) -> JobDraw:
    """Return a job whose tensors have other shapes and types; float16 where all values are whole numbers."""
    types = ["float32", "float32", "float64", *([] if draw.adaptive or draw.mean else ["float16"])]
    kinds = tuple((random.choice((0, 0, 1, 3, 16, 20)), random.choice(types)) for _ in range(3))
    return replace(draw, kinds=kinds, devices=random.choice((1, 1, 2)))


def _deep(draw: JobDraw, random: Random) -> JobDraw:
    faults = [replace(fault, deep=random.choice(_DEPTHS.get(fault.phase, ("",)))) for fault in draw.faults]
    return replace(draw, faults=tuple(faults))


def _sharing(draw: JobDraw, random: Random) -> JobDraw:
    """Let some jobs share memory; the steps of some of them are shorter than the way of a frame."""
    hosts = random.choice((0, 0, 1, 2))
    short = hosts and draw.latency[1] > _SHORT_PACE[1] and random.random() < 0.5
    if short:
        draw = replace(draw, pace=_SHORT_PACE, latency=(_SHORT_PACE[0], draw.latency[1]))
    return replace(draw, hosts=hosts)


def _lasts(random: Random, kind: str, role: str, lease: float) -> float:
    """Return for how many seconds a fault lasts, where it does: a launcher that never woke up would start nobody."""
    if kind not in (FREEZE, DROP, DELAY, FULL, BROKEN):
        return 0.0
    if kind in (FREEZE, DROP) and role != LAUNCHER and random.random() < 0.2:
        return FOR_EVER
    return random.choice((0.3, 1.0, 2.5)) * lease * random.random()


def _faults(
    random: Random,
    count: int,
    lease: float,
    phases: Callable[[str], Sequence[str]],
    replicas: int,
    table: Sequence[tuple[str, str]] = ROWS,
) -> Iterator[Fault]:
    """Yield faults of the few rows of the coverage table that this seed uses, among an operator's wishes."""
    rows = random.sample([row for row in table if row[0] not in OPERATOR], random.randint(1, 6))
    asked = random.sample(OPERATOR, random.randint(0, 3))
    wishes = [row for row in table if row[0] in asked]
    rate = random.choice((0.1, 0.5, 1.5))
    number, made = 0, 0
    while made < count:
        wish = bool(wishes) and random.random() < 0.4
        kind, role = random.choice(wishes if wish else rows)
        made += not wish
        yield Fault(
            number,
            kind,
            role,
            random.choice(phases(role)),
            after=random.random() * rate,
            lasts=_lasts(random, kind, role, lease),
            choice=random.getrandbits(16),
            workers=random.randint(1, 3),
            servers=random.randint(1 + replicas, 3 + replicas),
        )
        number += 1


def _phases(seed: int, replicas: bool, apart: bool, role: str) -> tuple[str, ...]:
    """Return in which phases a fault may come, those more often that few jobs have.

    One that waits for rest is alone in its phase, too.
    """
    if role == MOVERS and not replicas:
        return MOVING
    if apart:
        return (REST, REST, *PLAN_PHASES)
    if role == MOVERS and seed >= _MOVERS_SEEDS:
        return (REST, *PLAN_PHASES, *[DEATH] * 6, *[RESTORE] * 3, *[FILLING] * 3)
    return (REST, *PLAN_PHASES, DEATH, DEATH, RESTORE, RESTORE, *[FILLING] * (5 if replicas else 0))
