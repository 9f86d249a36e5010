"""``make gpu``: check the CUDA kernels on the GPU at hand, walk every float32 input, and measure; under nine minutes.

Uses the interpreter's own PyTorch, Triton and NumPy and installs nothing; compares with the CPU's kernels where Numba
is there too, and with Liger-Kernel where that is. Writes ``checks.json``, ``exhaustive.json`` and ``speed.json`` with
the machine's name into the folder given by ``--out``, anew every few seconds, so that whatever ends it leaves what was
found. Every section is a process of its own that is stopped when its time is up: what fails, hangs or is interrupted is
reported and leaves the other results as they are. ``--dry-run`` does the same on a CPU with tiny sizes, by Triton's
interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

from benchmarks import gpu_checks, gpu_speed
from benchmarks.gpu_checks import failure, surviving
from benchmarks.gpu_exhaustive import exhaustive
from benchmarks.gpu_machine import Gpu, Interpreter

NEEDED = ("numpy", "torch", "triton")
WORST_ULP = 2.0
SAVED_EVERY_S = 5.0
Row = dict[str, Any]
COMPILING = max(0, min(7, (os.cpu_count() or 1) // 2 - 1))
AHEAD = {f"compiling {share}": partial(gpu_speed.compile_ahead, share, COMPILING) for share in range(COMPILING)}
"""Compilation on the CPU during the GPU's exhaustive walk; else it would take most of the time for measurements."""
SECTIONS: dict[str, Callable[[Any, float], Iterable[Row]]] = {
    **gpu_checks.SECTIONS, "exhaustive": exhaustive, **AHEAD, "speed": gpu_speed.speed,
}  # fmt: skip


class Part(NamedTuple):
    """Contents of a results file."""

    sections: tuple[str, ...]
    budget_s: float
    """Time after which sections end by themselves."""
    patience_s: float
    """Additional time after which sections are killed."""


PARTS = {
    "checks": Part(tuple(gpu_checks.SECTIONS), 110.0, 15.0),
    "exhaustive": Part(("exhaustive", *AHEAD), 90.0, 15.0),
    "speed": Part(("speed",), 270.0, 25.0),
}


def machine(at: Any) -> Row:
    """Return the entries about the machine, which begin every results file."""
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=gpu_checks.ROOT, capture_output=True, text=True)
        commit = git.stdout.strip()
    except OSError:  # git is not installed
        commit = ""
    return {
        "gpu": at.name,
        "torch_cuda": at.torch.version.cuda,
        "torch": at.torch.__version__,
        "triton": import_module("triton").__version__,
        "commit": commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def run_sections(names: Iterable[str], at: Any, deadline: float, lines: IO[str]) -> None:
    """Run sections one after the other and write each row at once; end if the parent process has ended."""
    parent = os.getppid()
    for name in names:
        for row in surviving(name, SECTIONS[name](at, deadline)):
            if os.getppid() != parent:
                return
            lines.write(json.dumps(row) + "\n")
            lines.flush()


class Job:
    """A process that runs some sections."""

    def __init__(self, names: tuple[str, ...], part: Part, folder: Path, dry_run: bool) -> None:
        self.label = ", ".join(names)
        stem = folder / names[0].replace(" ", "-")
        self._rows, self._log = stem.with_suffix(".jsonl"), stem.with_suffix(".log")
        program = [sys.executable, "-m", "benchmarks.gpu", "--rows", str(self._rows), "--seconds", str(part.budget_s)]
        command = [*program, *(["--dry-run"] if dry_run else []), "--sections", *names]
        with self._log.open("w") as log:
            # A session of its own, so that processes started by the sections end with them.
            self.process = subprocess.Popen(
                command, cwd=gpu_checks.ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def written(self) -> list[Row]:
        """Return the rows written so far."""
        lines = self._rows.read_text().splitlines() if self._rows.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def results(self) -> list[Row]:
        """Stop the process if it still runs; return its rows, with a failure unless it succeeded."""
        code = self.process.poll()
        if code is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        rows = self.written()
        if code != 0:
            why = "stopped, its time was up" if code is None else f"ended with {code}: {self._log.read_text()}"
            rows.append(failure(self.label, why))
        return rows


def run_part(
    part: Part, dry_run: bool, found: list[Row], save: Callable[[list[Row]], None] = lambda rows: None
) -> None:
    """Collect the rows of all sections into ``found``, even of an interrupted run, and save them every few seconds."""
    waiting = [part.sections] if dry_run else [(name,) for name in part.sections]
    running: list[Job] = []
    begun = saved = time.monotonic()
    stop = begun + part.budget_s + part.patience_s
    with TemporaryDirectory() as folder:
        try:
            while (waiting or running) and time.monotonic() < stop:
                while waiting and len(running) < max(1, (os.cpu_count() or 1) // 2):
                    running.append(Job(waiting.pop(0), part, Path(folder), dry_run))
                for job in [job for job in running if job.process.poll() is not None]:
                    running.remove(job)
                    rows = job.results()
                    found.extend(rows)
                    print(f"  {job.label}: {len(rows)} results after {time.monotonic() - begun:.0f} s", flush=True)
                if time.monotonic() > saved + SAVED_EVERY_S:
                    save(found + [row for job in running for row in job.written()])
                    saved = time.monotonic()
                time.sleep(0.02)
        finally:
            for job in running:
                found.extend(job.results())
            found.extend(failure(", ".join(names), "never started, the time was up") for names in waiting)


def is_wrong(row: Row) -> bool:
    """Return true if a row of the results reports a failure."""
    if "passed" in row:
        return not row["passed"]
    if row.get("inputs", 0) < row.get("of", 0):
        return True
    return row.get("worst_ulp", 0.0) > WORST_ULP or row.get("wrong_special", 0) > 0


def latest(rows: Iterable[Row]) -> list[Row]:
    """Keep only the last row of each operator's walk."""
    kept: dict[Any, Row] = {}
    for place, row in enumerate(rows):
        kept[row["operator"] if "inputs" in row else place] = row
    return list(kept.values())


def save_results(file: Path, about: Row, begun: float, found: list[Row]) -> None:
    """Replace a part's file atomically."""
    rows = ",\n".join(json.dumps(row) for row in latest(found))
    head = json.dumps({"machine": about, "seconds": round(time.monotonic() - begun)})
    new = file.with_suffix(".new")
    new.write_text(f'{head[:-1]}, "results": [\n{rows}\n]}}\n')
    new.replace(file)


def run_parts(options: argparse.Namespace, about: Row) -> bool:
    """Write each part's file; return true if something failed."""
    failed = False
    for name in options.parts:
        begun, found = time.monotonic(), list[Row]()
        save = partial(save_results, options.out / f"{name}.json", about, begun)
        try:
            run_part(PARTS[name], options.dry_run, found, save)
        except KeyboardInterrupt:
            found.append(failure(name, "interrupted"))
            raise
        finally:
            save(found)
            rows = latest(found)
            wrong = [row for row in rows if is_wrong(row)]
            failed |= bool(wrong)
            print(f"{name}: {len(rows)} results in {time.monotonic() - begun:.0f} s, {len(wrong)} wrong", flush=True)
            for row in wrong[:20]:
                print("  ", row, flush=True)
            for text in gpu_speed.too_slow(rows):
                print("  ", text, flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the results")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--dry-run", action="store_true", help="by Triton's interpreter, with tiny sizes")
    for hidden, settings in (
        ("--sections", {"nargs": "+", "choices": list(SECTIONS)}), ("--rows", {"type": Path}),
        ("--seconds", {"type": float}),
    ):  # fmt: skip
        parser.add_argument(hidden, help=argparse.SUPPRESS, **settings)  # type: ignore[arg-type]  # of several types
    options = parser.parse_args()
    begun = time.monotonic()
    try:
        for package in NEEDED:
            import_module(package)
    except ImportError as error:
        sys.exit(f"make gpu: {error.name} is not installed for {sys.executable}; choose another with PYTHON=")
    torch: Any = import_module("torch")
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("make gpu: expected an NVIDIA GPU that PyTorch can use, got none (torch.cuda.is_available() is False)")
    if options.sections:
        import_module("aclnn.torch")
    at = Interpreter(torch) if options.dry_run else Gpu(torch)
    if options.sections:
        with options.rows.open("w") as lines:
            run_sections(options.sections, at, begun + options.seconds, lines)
        return 0
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(run_parts(options, machine(at)))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
