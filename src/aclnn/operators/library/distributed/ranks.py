"""Operators that exchange data with the other ranks of a group, through a communicator created by HCCL.

Phase one finds the group by its name, on the current device, and binds it to the work; phase two queues the work after
other streams' work for the communicator. A failure fails the stream's task and ends the communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from aclnn.core.checks import listing, rule
from aclnn.core.operator import Call, Check, Library, Parameter
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import constant_text
from aclnn.runtime import communicators
from aclnn.runtime.collectives import Ranks
from aclnn.runtime.communicators import Communicator


def group(name: str = "group", meaning: str = "the name of the ranks' communicator") -> Parameter:
    """Declare the name of a communicator, as written by HcclGetCommName."""
    return constant_text(name, meaning)


def is_group(name: str = "group", counts: Mapping[Product, Collection[int]] | None = None) -> Check:
    """Require the name of a live communicator with one rank on the current device.

    Args:
        name: the argument.
        counts: supported numbers of ranks by product; any by default.
    """

    def violation(call: Call) -> str | None:
        found = communicators.named(call[name])
        if len(found) == 1:
            size = found[0].size
            allowed = (counts or {}).get(call.product, (size,))
            if size in allowed:
                return None
            return f"{name}: expected {listing(map(str, allowed))} ranks on {call.product.title}, got {size}"
        got = (
            f", the name of its ranks {listing(str(rank) for rank in sorted(each.rank for each in found))}"
            if found
            else ""
        )
        return f"{name}: expected the name of a communicator with a rank on this device, got {call[name]!r}{got}"

    return rule(f"communicator of this device: {name}", violation, ACLNN_ERR_INNER_TILING_ERROR)


def communicator(call: Call, name: str = "group") -> Communicator:
    """Return the communicator of a group, whose existence has been checked."""
    (found,) = communicators.named(call[name])
    return found


def with_ranks(
    call: Call, function: Callable[..., Any], inputs: tuple[str, ...], outputs: tuple[str, ...], name: str = "group"
) -> Library:
    """Compute ``outputs = function(ranks, *inputs)`` with the ranks of a group; ``ranks`` is a ``Ranks``."""
    comm = communicator(call, name)
    ranks = Ranks(comm, call.operator.function)
    return Library(lambda *operands: function(ranks, *operands), inputs, outputs, communicator=comm)
