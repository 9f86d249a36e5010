"""Ascend products: SoC names, architectures, and the product that this process emulates."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from enum import Enum

from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError

DEFAULT_SOC_NAME = "Ascend910B2"


class Product(Enum):
    """Product family: title, architecture number, pattern of its SoC names, an example of one."""

    ASCEND_950 = "Ascend 950PR / 950DT", 3510, r"Ascend950(PR|DT)_\w+", "Ascend950DT_9571"
    ATLAS_A3 = "Atlas A3", 2201, r"Ascend910_93\d\d", "Ascend910_9391"
    ATLAS_A2 = "Atlas A2", 2201, r"Ascend910B\d\w*(-\d)?", DEFAULT_SOC_NAME
    ATLAS_200I_500_A2 = "Atlas 200I/500 A2", 3002, r"Ascend310B\d", "Ascend310B4"
    ATLAS_INFERENCE = "Atlas inference", 2002, r"Ascend310P\d", "Ascend310P3"
    # The name Ascend910B without a digit is a training part; A2 parts always end in a digit.
    ATLAS_TRAINING = "Atlas training", 1001, r"Ascend910(A|B|ProA|ProB|PremiumA)", "Ascend910A"

    __hash__ = object.__hash__  # faster than Enum's, and members are singletons; every call hashes them

    def __init__(self, title: str, architecture: int, long_names: str, example: str) -> None:
        self.title = title
        self.architecture = architecture
        self.long_names = long_names
        self.example = example

    @property
    def has_bfloat16(self) -> bool:
        """True on architectures 2201 and 3510, which have BF16."""
        return self in A2_CLASS or self in CLASS_950


A2_CLASS = frozenset({Product.ATLAS_A2, Product.ATLAS_A3})
CLASS_950 = frozenset({Product.ASCEND_950})


_MIB = 1 << 20
# AI cores, vector cores and bytes of L2 cache, for chips whose numbers are published.
_CORES: dict[str, tuple[int, int, int | None]] = {
    r"Ascend910B(1|2|2C)|Ascend910_93[89]\d": (24, 48, 192 * _MIB),
    r"Ascend910B3|Ascend910_93[67]\d": (20, 40, 192 * _MIB),
    r"Ascend910B4(-1)?": (20, 40, 96 * _MIB),
    r"Ascend950PR_950z": (4, 8, 128 * _MIB),
    r"Ascend950DT_950[xy]": (8, 16, 128 * _MIB),
    r"Ascend950(PR|DT)_957\w": (28, 56, 128 * _MIB),
    r"Ascend950(PR|DT)_958\w": (32, 64, 128 * _MIB),
    r"Ascend950(PR|DT)_(959|95A)\w": (36, 72, 128 * _MIB),
    r"Ascend310B\d": (1, 1, None),
}


def cores(soc_name: str) -> tuple[int | None, int | None, int | None]:
    """Return a chip's AI cores, vector cores and bytes of L2 cache; None for each unpublished number."""
    found = (numbers for names, numbers in _CORES.items() if re.fullmatch(names, soc_name))
    return next(found, (None, None, None))


def product_of(soc_name: str) -> Product:
    """Return the product family of a SoC name such as ``Ascend910B2`` or ``Ascend950DT_9571``.

    Raises:
        AclnnError: 161002, the name belongs to no product.
    """
    for product in Product:
        if re.fullmatch(product.long_names, soc_name):
            return product
    names = ", ".join(f"{product.example} ({product.title})" for product in Product)
    raise AclnnError(
        ACLNN_ERR_PARAM_INVALID,
        f"SoC name (ACLNN_SOC_NAME or aclnn.set_soc_name): expected a long name such as {names}, got {soc_name!r}",
    )


#: Called after a product has been selected.
when_chosen: list[Callable[[], object]] = []

_selected: tuple[str, Product] | None = None
_lock = threading.RLock()


def _selection() -> tuple[str, Product]:
    if _selected is None:
        # Locked: the default must not overwrite a concurrent selection.
        with _lock:
            if _selected is None:
                set_soc_name(os.environ.get("ACLNN_SOC_NAME") or DEFAULT_SOC_NAME)
    assert _selected is not None
    return _selected


def set_soc_name(name: str) -> None:
    """Choose the product to emulate, by its SoC name; existing executors keep theirs.

    Raises:
        AclnnError: 161002, the name belongs to no product.
    """
    global _selected
    chosen = name, product_of(name)
    with _lock:
        _selected = chosen
        for tell in when_chosen:
            tell()


def soc_name() -> str:
    """Return the SoC name: the last ``set_soc_name``, else ``ACLNN_SOC_NAME``, else Ascend910B2."""
    return _selection()[0]


def current_product() -> Product:
    """Return the product family that this process emulates."""
    return _selection()[1]
