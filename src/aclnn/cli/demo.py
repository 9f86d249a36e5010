"""``aclnn demo``: run both parts, print them, draw the figure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from aclnn import soc_name
from aclnn.cli import console
from aclnn.cli.options import STDOUT
from aclnn.demo import digits, figure
from aclnn.demo.program import Program
from aclnn.demo.worked_examples import WORKED_EXAMPLES, WorkedExample
from aclnn.support.optional import import_or_raise

LEAST_ACCURACY = 0.95

Examples = Sequence[tuple[WorkedExample, dict[str, tuple[str, ...]]]]


def run(out: Path, json: Path | None = None) -> None:
    """Run the examples and the training, print the results, and draw the figure.

    Args:
        out: folder for the figure.
        json: file for a JSON document; ``-`` prints it in place of the tables.

    Raises:
        typer.Exit: status 1, a printed digit or an accuracy is not as expected.
        AclnnError: a call failed.
        MissingExtraError: a package of the extra ``demo`` is not installed.
    """
    for package in ("sklearn", "matplotlib"):  # before the worked examples
        import_or_raise(package, "demo")
    begin = time.perf_counter()
    path = out / "digits-loss.png"
    with Program() as program:
        examples = _compute(program)
        if json != STDOUT:
            _print_examples(examples)
        trainings = _train(program)
    figure.draw(trainings, path)
    seconds = time.perf_counter() - begin
    if json is not None:
        console.write_json(_document(examples, trainings, path, seconds), json)
    if json != STDOUT:
        _print_trainings(trainings)
        console.out.print(f"Loss curves: {path}\n{seconds:.1f} s in all, compiling included; product {soc_name()}.")
    right = all(dict(example.printed) == got for example, got in examples)
    learned = all(training.test_accuracy >= LEAST_ACCURACY for training in trainings)
    if not (right and learned):
        console.err.print(
            f"aclnn: expected the documented digits and accuracies of at least {LEAST_ACCURACY:.0%}, got others",
            style="red",
        )
        raise typer.Exit(1)


def _compute(program: Program) -> Examples:
    examples = []
    with console.progress(len(WORKED_EXAMPLES)) as bar:
        for example in WORKED_EXAMPLES:
            bar.step(f"worked examples, {example.operator}", advance=0)
            examples.append((example, example.compute(program)))
            bar.step("worked examples")
    return examples


def _train(program: Program) -> list[digits.Training]:
    scans = digits.load_digits()
    trainings = []
    with console.progress(len(digits.ACTIVATIONS) * digits.EPOCHS) as bar:
        for activation in digits.ACTIVATIONS:
            epoch_done = partial(bar.step, f"digits, {activation.title}")
            epoch_done(0)
            trainings.append(digits.train(program, activation, scans, epoch_done))
    return trainings


def _print_examples(examples: Examples) -> None:
    console.out.print("Worked examples: the values that the documents imply, and ours")
    for example, got in examples:
        console.out.print(f"\n{example.operator}, {example.title}", style="bold")
        table = Table.grid(padding=(0, 2))
        for name, printed in example.printed.items():
            table.add_row(f"  {name}", "document", _joined(printed))
            table.add_row("", "aclnn", f"{_joined(got[name])} {'✓' if got[name] == printed else '✗'}")
        console.out.print(table)
    console.out.print()


def _print_trainings(trainings: Sequence[digits.Training]) -> None:
    table = Table("activation", box=SIMPLE, title="Handwritten digits, trained on the CPU")
    for column in ("test accuracy", "seconds", "operator calls", "last loss"):
        table.add_column(column, justify="right")
    for training in trainings:
        accuracy, seconds = f"{100 * training.test_accuracy:.1f} %", f"{training.seconds:.2f}"
        calls, loss = f"{training.operator_calls:,}", f"{training.losses[-1]:.4f}"
        table.add_row(training.activation, accuracy, seconds, calls, loss)
    console.out.print(table)


def _joined(digits_of: Sequence[str]) -> str:
    """Join values, with a repeated value once and its count."""
    if len(set(digits_of)) == 1 and len(digits_of) > 1:
        return f"{digits_of[0]} ({len(digits_of)} times)"
    return " ".join(digits_of)


def _document(examples: Examples, trainings: Sequence[digits.Training], path: Path, seconds: float) -> dict[str, Any]:
    return {
        "soc_name": soc_name(),
        "worked_examples": [
            {"operator": example.operator, "title": example.title, "expected": dict(example.printed), "got": got}
            for example, got in examples
        ],
        "trainings": [asdict(training) for training in trainings],
        "figure": str(path),
        "seconds": seconds,
    }
