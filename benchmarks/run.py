"""Measure every operator compared with PyTorch, torch.compile, JAX where it is installed, and the memory limit.

    python -m benchmarks.run [--quick] [--no-compile] [--pairs N] [--sections main family …]

All providers of a workload run in one process, one after the other in every round, so that a slow moment hits them all;
medians with the 20th and 80th percentiles go to the machine's folder in benchmarks/results, what else a call costs too,
tables and pictures to docs; sections that were not asked for stay as they are. Of a machine with many processors
``--pairs`` takes two for each of several processes, which share the workloads. A row whose result is wrong is reported
and gets no ratio. ``pip install jax`` makes JAX take part in the activations of the section main.
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import llvmlite.binding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aclnn.kernels.cpu.target import processors
from benchmarks import costs, figures, workloads
from benchmarks.workloads import Call, Workload

HERE = Path(__file__).parent
BUILD = Path("build/benchmarks")
SHORTEST_S = 2e-3
"""Calls shorter than this are timed in batches."""

SECTIONS = ("main", "family", "norms", "wide", "layouts", "sizes", "map", "costs")

CORES = processors()
"""Processors, all of which JAX always uses: it is measured where the others use as many threads."""

PAUSE_S = 0.01
"""Pause before each provider's turn, since PyTorch's threads spin for 5 ms after their work."""

WARM_S = 0.025
"""Warm-up after the pause, since Linux may keep two idle threads of PyTorch on one core for several ms."""


class Result(NamedTuple):
    """A row of results.csv; ``share_of_limit`` is the limit's median time over this one's."""

    section: str
    operator: str
    dtype: str
    shape: str
    layout: str
    threads: int
    provider: str
    us: float
    p20_us: float
    p80_us: float
    gb_per_s: float
    share_of_limit: float
    times_torch: float
    machine: str
    commit: str


@cache
def machine() -> str:
    """Describe the machine: processor name, LLVM's name of its type, and number of processors for this process."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    kind = llvmlite.binding.get_host_cpu_name()
    return f"{name.replace('(R)', '').replace('(TM)', '')} ({kind}), {CORES} cores"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


WRITTEN = (
    "benchmarks/*.csv",
    "benchmarks/results",
    "docs/figures",
    "docs/benchmarks",
    "docs/benchmarks.md",
    "docs/numerics.md",
)
"""Files written by this program and ``benchmarks.exhaustive``, relative to the project's folder."""


def revision(folder: Path) -> str:
    """Return the commit of a working tree, with ``-dirty`` for changes to files other than ``WRITTEN``."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=folder)

    if shutil.which("git") is None or not (found := git("describe", "--always").stdout.strip()):
        return "unknown"
    others = [f":(top,exclude){path}" for path in WRITTEN]
    return found + ("-dirty" if git("diff", "--quiet", "HEAD", "--", ":(top)", *others).returncode else "")


@cache
def commit() -> str:
    """Return the measured revision, read once before results are written."""
    return revision(HERE)


def _batch(call: Call) -> int:
    """Return the number of calls in a batch long enough for the clock."""
    call()
    begun = time.perf_counter()
    call()
    return max(1, min(5000, int(SHORTEST_S / max(time.perf_counter() - begun, 1e-7))))


def _warm(call: Call) -> None:
    """Call repeatedly until caches and the scheduler's placement of idle threads have settled."""
    begun = time.perf_counter()
    call()
    while time.perf_counter() < begun + WARM_S:
        call()


def interleaved(calls: dict[str, Call], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Measure each call's seconds by round, in at least three rounds, until the time or the rounds are used up."""
    batches = {name: _batch(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() > end:
            break
        for name, call in calls.items():
            time.sleep(PAUSE_S)
            _warm(call)
            begun = time.perf_counter()
            for _ in range(batches[name]):
                call()
            times[name].append((time.perf_counter() - begun) / batches[name])
    return times


def measure(work: Workload, threads: int, rounds: int, seconds: float) -> list[Result]:
    workloads.set_threads(threads)
    calls = {"limit": workloads.limit(work.nbytes), **work.calls}
    if threads != CORES:
        calls.pop("jax", None)
    times = interleaved(calls, rounds, seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    reference = medians.get("torch") or medians["composed"]
    rows = []
    for name, values in times.items():
        low, _, _, high = statistics.quantiles(values, n=5)
        rows.append(
            Result(
                work.section,
                work.operator,
                work.dtype,
                "x".join(map(str, work.shape)),
                work.layout,
                threads,
                name,
                round(medians[name] * 1e6, 3),
                round(low * 1e6, 3),
                round(high * 1e6, 3),
                round(work.nbytes / medians[name] / 1e9, 6),
                round(medians["limit"] / medians[name], 3),
                round(reference / medians[name], 3),
                machine(),
                commit(),
            )
        )
    return rows


def run(make: Callable[[], Workload], threads: tuple[int, ...], rounds: int, seconds: float) -> list[Result]:
    """Measure the rows of a workload; none if its result is wrong."""
    work = make()
    problem = work.check()
    if problem is not None:
        print(f"WRONG, not measured: {work.operator} {work.dtype} {work.shape} {work.layout}: {problem}")
        return []
    counts = threads if work.section == "main" else threads[-1:]
    rows = [row for count in counts for row in measure(work, count, rounds, seconds)]
    gc.collect()
    return rows


@cache
def _makers(quick: bool) -> list[tuple[str, Callable[[], Workload]]]:
    """Return the section and the factory of every workload."""
    return list(workloads.workloads(quick))


def measure_one(place: int, quick: bool, compiles: bool, rounds: int, seconds: float) -> list[Result]:
    """Measure the rows of the workload at an index."""
    workloads.COMPILE = compiles
    _, make = _makers(quick)[place]
    return run(make, (1, 2), rounds, seconds)


def _pool(processors: Sequence[int]) -> ProcessPoolExecutor:
    """Start a process that is bound to these processors from its first import on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        pool.submit(int).result()
    finally:
        os.sched_setaffinity(0, before)
    return pool


def shared(measure: Callable[[int], list[Result]], places: Iterable[int], pairs: int) -> Iterator[list[Result]]:
    """Yield the rows of each workload in order, measured by several processes on two processors each."""
    processors = sorted(os.sched_getaffinity(0))
    free: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()

    def elsewhere(place: int) -> list[Result]:
        pool = free.get()
        try:
            return pool.submit(measure, place).result()
        finally:
            free.put(pool)

    with ExitStack() as stack:
        for first in range(0, 2 * pairs, 2):
            free.put(stack.enter_context(_pool(processors[first : first + 2])))
        yield from stack.enter_context(ThreadPoolExecutor(pairs)).map(elsewhere, places)


def kept(path: Path, measured: list[str]) -> list[tuple[str, ...]]:
    """Return the existing rows of sections that were not measured."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [tuple(row) for row in csv.reader(file) if row[0] not in ("section", *measured)]


def save(rows: list[tuple[Any, ...]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Result._fields)
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sixteenth of the elements, into build/ instead")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, which takes minutes")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--pairs", type=int, default=0, help="processes, with two processors each, that share the work")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0, help="time for a workload and number of threads")
    options = parser.parse_args()
    if 2 * options.pairs > CORES:
        parser.error(f"--pairs: expected at most {CORES // 2} (two processors for each), got {options.pairs}")
    compiles = not options.no_compile and shutil.which("c++") is not None
    seconds = 0.3 if options.quick else options.seconds
    places = [place for place, (section, _) in enumerate(_makers(options.quick)) if section in options.sections]
    measure = partial(measure_one, quick=options.quick, compiles=compiles, rounds=options.rounds, seconds=seconds)
    found = shared(measure, places, options.pairs) if options.pairs else map(measure, places)
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    print(f"{machine()}, commit {commit()}")
    rows: list[Result] = []
    with Progress(*columns) as progress:
        for part in progress.track(found, total=len(places), description="workloads"):
            rows += part
    results, report = (BUILD / "results", BUILD / "benchmarks.md") if options.quick else (figures.RESULTS, figures.PAGE)
    folder = results / figures.folder_of(rows[0].machine if rows else machine())
    save([*kept(folder / "results.csv", options.sections), *rows], folder / "results.csv")
    if "costs" in options.sections:
        costs.save(costs.measure(options.quick), folder / "costs.csv")
        costs.save(list(costs.switch(options.quick)), folder / "streaming.csv")
    figures.write(results, report)
    print(f"written to {folder} and {report}")


if __name__ == "__main__":
    main()
