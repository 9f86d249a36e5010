"""aclnnDistributeBarrier and V2: later work waits until every rank of a group has reached the barrier."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, fits, generated, null, shape_is, value_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, optional_in, support, tensor_out
from aclnn.operators.library.distributed.expert_ranks import named
from aclnn.operators.library.distributed.ranks import communicator, group, is_group, with_ranks
from aclnn.runtime.collectives import Ranks

_INTEGERS = (D.INT8, D.INT16, D.INT32, D.INT64, D.UINT8, D.UINT16, D.UINT32, D.UINT64)
_DTYPES = (D.FLOAT16, D.BF16, D.FLOAT, D.BOOL, *_INTEGERS)
_MOST = 384


def _work(call: Call) -> Library | None:
    def wait(ranks: Ranks, x: Any) -> Any:
        nothing = np.zeros((ranks.size, 1), np.int8)
        ranks.exchange([*nothing], [*nothing.copy()])
        return x

    return with_ranks(call, wait, ("xRef",), ("xRef",)) if call["xRef"].size else None


def _barrier(version: int) -> Operator:
    later = version > 1
    checked = (
        *((dims_between(1, 1, "timeOut"), null("elasticInfo")) if later else ()),
        value_is(f"from 2 to {_MOST}", lambda got: 2 <= got <= _MOST, "worldSize"),
        *((shape_is("one number", lambda call: (1,), "timeOut"),) if later else ()),
        is_group(),
        fits("{} (that of group)", lambda call, got: (communicator(call).size, got), "worldSize"),
    )
    nulls, *others = generated(
        (),
        ("xRef",),
        lambda product: [(dtype,) for dtype in _DTYPES],
        *checked,
        optional=(dtype_in((D.INT32,), "timeOut"),) if later else (),
    )
    return Operator(
        name=f"distribute_barrier{'_v2' if later else ''}",
        function=f"aclnnDistributeBarrier{'V2' if later else ''}",
        summary="Barrier: wait until every rank of a group reaches it.",
        formula="xRef is unchanged",
        parameters=(
            tensor_out("xRef", "a tensor that orders the barrier among other operators", later),
            *(
                (optional_in("timeOut", "the timeout of a rank; ignored; INT32"), optional_in("elasticInfo", "null"))
                if later
                else ()
            ),
            group(),
            attribute("worldSize", Kind.INT64, "the number of ranks"),
        ),
        support=support(_DTYPES, {Product.ATLAS_A3, *CLASS_950}),
        checks=(nulls, *named("group", ACLNN_ERR_PARAM_NULLPTR), *others),
        work=_work,
    )


OPERATORS = (_barrier(1), _barrier(2))
