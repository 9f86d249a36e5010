"""Windows of sequences, added up by weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import compression
from tests.cases.table import NO_KERNEL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Subject, computed, described, torch, wide

COMPRESS, GRADIENT = "nsa_compress", "nsa_compress_grad"
ROWS, BLOCK, STRIDE, ENDS = (90, 3, 16), 32, 16, (40, 47, 90)
#: The second sequence is shorter than a window.
STARTS = (0, 47)
WINDOWS = {"compressBlockSize": BLOCK, "compressStride": STRIDE, "actSeqLenType": 0}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    COMPRESS: lambda d: {
        "input": T(d, ROWS),
        "weight": T(d, (BLOCK, 3)),
        "actSeqLenOptional": ENDS,
        "layoutOptional": "TND",
        "output": T(d, (2, 3, 16)),
        **WINDOWS,
    },
    GRADIENT: lambda d: {
        "input": T(d, ROWS),
        "weight": T(d, (BLOCK, 3)),
        "actSeqLenOptionalOptional": ENDS,
        "layoutOptionalOptional": "TND",
        "outputGrad": T(d, (2, 3, 16)),
        "inputGradOut": T(d, ROWS),
        "weightGradOut": T(d, (BLOCK, 3)),
        **WINDOWS,
    },
}


def _compressed(given: Any, weight: Any) -> Any:
    return torch.stack([(given[at : at + BLOCK] * weight[..., None]).sum(0) for at in STARTS])


def _gradients(a: Mapping[str, Any]) -> Any:
    given = [wide(a[name]).requires_grad_() for name in ("input", "weight")]
    return torch.autograd.grad(_compressed(*given), given, wide(a["outputGrad"]))


class TestCompression(LibraryTests):
    subject = Subject(
        compression.OPERATORS,
        calls=CALLS,
        references={COMPRESS: lambda a: _compressed(wide(a["input"]), wide(a["weight"])), GRADIENT: _gradients},
        default=(D.FLOAT16, D.BF16),
        # Only what is compressed may be empty, where no sequence has a window; inputs may not.
        empty={
            COMPRESS: shape((31, 3, 16), "input")
            | shape((BLOCK, 3), "weight")
            | shape((0, 3, 16), "output")
            | {"actSeqLenOptional": (31,)},
            GRADIENT: shape((31, 3, 16), "input", "inputGradOut")
            | shape((BLOCK, 3), "weight", "weightGradOut")
            | shape((0, 3, 16), "outputGrad")
            | {"actSeqLenOptionalOptional": (31,)},
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
            "same data type as input": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
            "same shape as input": lambda o, name: Break(shape((90, 3, 32), name), "[90, 3, 16]"),
            "same shape as weight": lambda o, name: Break(shape((BLOCK, 4), name), "[32, 3]"),
            "3 dimensions": lambda o, name: Break(
                shape((90, 48), name, *(("inputGradOut",) if name == "input" and o.name == GRADIENT else ())),
                "3 dimensions",
            ),
            "2 dimensions": lambda o, name: Break(
                shape((96,), name, *(("weightGradOut",) if o.name == GRADIENT else ())), "2 dimensions"
            ),
            "some elements": lambda o, name: Break(
                shape((90, 0, 16), name, *(("inputGradOut",) if o.name == GRADIENT else ())), "heads with elements"
            ),
            "a row for each of a window": lambda o, name: Break(
                shape((16, 3), name, *(("weightGradOut",) if o.name == GRADIENT else ())), "[32, 3]"
            ),
            "allowed value": lambda o, name: Break(
                {name: "BSND" if "layout" in name else 1}, "TND" if name[0] == "l" else "0"
            ),
            "ends of sequences": lambda o, name: Break({name: None}, "numbers"),
            "of all rows": lambda o, name: Break({name: (47, 40, 90)}, "rising numbers up to 90"),
            "windows and heads with a kernel": lambda o, name: Break({"compressStride": 24}, "multiples of 16"),
            "a row for each window": lambda o, name: Break(shape((3, 3, 16), name), "[2, 3, 16]"),
        },
        codes=dict.fromkeys(("of all rows", "windows and heads with a kernel", "a row for each window"), NO_KERNEL),
    )


def test_windows_overlap_in_gradients_only() -> None:
    """The documents allow a stride of a window's rows forwards, which torch_npu's test has, and less backwards."""
    random = np.random.default_rng(3)
    rows, weight = (random.normal(size=of).astype(np.float16) for of in ((40, 1, 16), (16, 1)))
    call = {"input": rows, "weight": weight, "actSeqLenOptional": (40,), "layoutOptional": "TND"}
    windows = WINDOWS | {"compressBlockSize": 16}
    found = computed(COMPRESS, call | windows | {"output": np.zeros((2, 1, 16), np.float16)})["output"]
    expected = (rows[:32].reshape(2, 16, 1, 16).astype(np.float64) * weight[..., None]).sum(1)
    np.testing.assert_allclose(found, expected, 2e-3, 2e-3)
    arguments = described(CALLS[GRADIENT](D.FLOAT16) | {"compressStride": 32})
    with pytest.raises(AclnnError, match="more than compressStride, got 32 and 32"):
        prepare(BY_NAME[GRADIENT], arguments, Product.ATLAS_A2)


@pytest.mark.parametrize("of", [(90, 129, 16), (90, 3, 24), (90, 3, 272)])
def test_heads_without_a_kernel(of: tuple[int, int, int]) -> None:
    changes = {"input": T(D.FLOAT16, of), "weight": T(D.FLOAT16, (BLOCK, of[1])), "output": T(D.FLOAT16, (2, *of[1:]))}
    with pytest.raises(AclnnError, match="at most 128 heads of a multiple of 16 elements up to 256"):
        prepare(BY_NAME[COMPRESS], described(CALLS[COMPRESS](D.FLOAT16) | changes), Product.ATLAS_A2)


def test_sequences_shorter_than_a_window_give_no_rows() -> None:
    changes = {"actSeqLenOptional": (0, 30, 60, 90), "output": T(D.FLOAT16, (0, 3, 16))}
    prepare(BY_NAME[COMPRESS], described(CALLS[COMPRESS](D.FLOAT16) | changes), Product.ATLAS_A2).run()
