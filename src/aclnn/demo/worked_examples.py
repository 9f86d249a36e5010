"""The sample programs in the documents of the five gradients: arguments and expected output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aclnn.demo.program import Program
from aclnn.operators import BY_NAME
from aclnn.typing import Array


@dataclass(frozen=True)
class WorkedExample:
    """A call of an operator, and its outputs' elements as printed by ``%f``."""

    title: str
    operator: str
    arguments: Mapping[str, Any]
    """Arguments by C name: arrays for tensors, tuples and strings for attributes; others are null."""
    printed: Mapping[str, tuple[str, ...]]
    """Printed elements by the output's C name."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the outputs that differ in shape from the first input."""

    def compute(self, program: Program) -> dict[str, tuple[str, ...]]:
        """Run the call through the two-phase interface and format its outputs as the sample program prints them."""
        operator = BY_NAME[self.operator]
        first = next(value for value in self.arguments.values() if isinstance(value, np.ndarray))
        outputs = {name: np.full(self.shapes.get(name, first.shape), np.nan, np.float32) for name in self.printed}
        arguments = dict.fromkeys((p.name for p in operator.parameters), None) | dict(self.arguments) | outputs
        program.call(operator, arguments)
        return {name: tuple(f"{value:f}" for value in array.ravel().tolist()) for name, array in outputs.items()}


def _float32(values: Any, *shape: int) -> Array:
    return np.asarray(values, np.float32).reshape(shape)


_EIGHT = _float32(range(8), 4, 2)
# The sample fills the float tensor gradOutput with int ones, so that each element is the smallest subnormal.
_INT_ONES = np.ones((4, 2), np.int32).view(np.float32)

WORKED_EXAMPLES = (
    WorkedExample(
        "the document's",
        "fast_gelu_backward",
        {"gradOutput": _float32([0] * 9, 3, 3), "self": _float32([0] * 9, 3, 3)},
        {"gradInput": ("0.000000",) * 9},
    ),
    WorkedExample(
        "with ones arriving",
        "fast_gelu_backward",
        {"gradOutput": _float32([1] * 9, 3, 3), "self": _float32([0] * 9, 3, 3)},
        {"gradInput": ("0.500000",) * 9},
    ),
    WorkedExample(
        "the document's",
        "silu_backward",
        {"gradOutput": _float32([1] * 6, 2, 3), "self": _float32([1, 2, 3, 4, 5, 6], 2, 3)},
        {"gradInput": ("0.927671", "1.090784", "1.088104", "1.052665", "1.026547", "1.012326")},
    ),
    WorkedExample(
        "the document's bytes: int ones labelled float",
        "gelu_backward_v2",
        {"gradOutput": _INT_ONES, "self": _EIGHT, "approximate": "tanh"},
        {"gradInput": ("0.000000",) * 8},
    ),
    WorkedExample(
        "as intended: float ones, tanh",
        "gelu_backward_v2",
        {"gradOutput": _float32([1] * 8, 4, 2), "self": _EIGHT, "approximate": "tanh"},
        {"gradInput": ("0.500000", "1.082964", "1.086099", "1.011584", "1.000335", "1.000002", "1.000000", "1.000000")},
    ),
    WorkedExample(
        "float ones, none",
        "gelu_backward_v2",
        {"gradOutput": _float32([1] * 8, 4, 2), "self": _EIGHT, "approximate": "none"},
        {"gradInput": ("0.500000", "1.083315", "1.085232", "1.011946", "1.000504", "1.000007", "1.000000", "1.000000")},
    ),
    WorkedExample(
        "the document's",
        "hardswish_backward",
        {"gradOutput": _EIGHT, "self": _EIGHT},
        {"out": ("0.000000", "0.833333", "2.333333", "4.500000", "4.000000", "5.000000", "6.000000", "7.000000")},
    ),
    WorkedExample(
        "the document's",
        "layer_norm_backward",
        {
            "gradOut": _float32([2, 3, 4, 5], 2, 2),
            "input": _float32([2, 3, 4, 5], 2, 2),
            "normalizedShape": (2,),
            "mean": _float32([2, 3], 2, 1),
            "rstd": _float32([4, 5], 2, 1),
            "weightOptional": _float32([1, 1], 2),
            "biasOptional": _float32([0, 0], 2),
            "outputMask": (True, True, True),
        },
        {
            "gradInputOut": ("-2.000000", "-94.000000", "-877.500000", "-1747.500000"),
            "gradWeightOut": ("20.000000", "62.000000"),
            "gradBiasOut": ("6.000000", "8.000000"),
        },
        shapes={"gradWeightOut": (2,), "gradBiasOut": (2,)},
    ),
)
