"""Steps of optimizers that have a type in CANN's graphs and no ``aclnn`` function, as MindSpore calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dtype_in, limited_dims, same_dtype, shape_is, size_is, where_supported
from aclnn.core.operator import Kind, Operator
from aclnn.operators.library.by_type.declaration import plain_attribute, typed
from aclnn.operators.library.common import tensor_in, tensor_out

Array = np.ndarray[Any, Any]


def _step(
    op_type: str,
    formula: str,
    inputs: str,
    state: str,
    function: Callable[..., tuple[Array, ...]],
    *attributes: str,
    further: str = "",
) -> Operator:
    """An operator of parameters, state, the gradient and numbers, which the function gets as such.

    Args:
        op_type: the type, which is the name too.
        formula: as text.
        inputs: names in the type's order.
        state: those of them that are replaced, in the order of the function's results.
        function: of the inputs, then the attributes.
        attributes: names of further numbers.
        further: names of further tensors.
    """
    names, replaced = inputs.split(), state.split()
    tensors = [name for name in names if name in (*replaced, *further.split(), "grad")]
    numbers = [name for name in names if name not in tensors]
    results = [name if name not in names else f"{name}_out" for name in replaced]
    first, *others = tensors

    def step(*given: Any) -> tuple[Array, ...]:
        count = len(names)
        operands = [
            each.reshape(()) if name in numbers else each.astype(np.float64)
            for name, each in zip(names, given[:count], strict=True)
        ]
        return function(*operands, *given[count:])

    return typed(
        op_type,
        formula,
        (
            *(tensor_in(name, "one number" if name in numbers else "parameters, state or gradient") for name in names),
            *(plain_attribute(name, Kind.DOUBLE) for name in attributes),
            *map(tensor_out, results),
        ),
        (
            dtype_in(where_supported(FLOATING), first),
            *(same_dtype(name, first) for name in (*others, *numbers, *results)),
            limited_dims(first),
            shape_is(f"as {first} has", lambda call: call[first].shape, *others, *results),
            size_is("one number", lambda call: 1, *numbers),
        ),
        step,
        FLOATING,
    )


def _ada_delta(
    var: Array, accum: Array, update: Array, lr: Array, rho: Array, epsilon: Array, grad: Array
) -> tuple[Array, ...]:
    accum = rho * accum + (1 - rho) * grad**2
    step = np.sqrt(update + epsilon) / np.sqrt(accum + epsilon) * grad
    return var - lr * step, accum, rho * update + (1 - rho) * step**2


def _ada_max(
    var: Array, m: Array, v: Array, power: Array, lr: Array, beta1: Array, beta2: Array, epsilon: Array, grad: Array
) -> tuple[Array, ...]:
    m, v = beta1 * m + (1 - beta1) * grad, np.maximum(beta2 * v, np.abs(grad))
    return var - lr / (1 - power) * m / (v + epsilon), m, v


def _ada_grad(var: Array, accum: Array, lr: Array, grad: Array, epsilon: float) -> tuple[Array, ...]:
    accum = accum + grad**2
    return var - lr * grad / (np.sqrt(accum) + epsilon), accum


def _proximal_ada_grad(var: Array, accum: Array, lr: Array, l1: Array, l2: Array, grad: Array) -> tuple[Array, ...]:
    accum = accum + grad**2
    rate = lr / np.sqrt(accum)
    moved = var - rate * grad
    return np.sign(moved) * np.maximum(np.abs(moved) - rate * l1, 0) / (1 + rate * l2), accum


def _amsgrad(
    var: Array, m: Array, v: Array, vhat: Array, beta1_power: Array, beta2_power: Array, lr: Array, *given: Array
) -> tuple[Array, ...]:
    beta1, beta2, epsilon, grad = given
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
    vhat = np.maximum(vhat, v)
    rate = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    return var - rate * m / (np.sqrt(vhat) + epsilon), m, v, vhat


def _centered(
    var: Array, mg: Array, ms: Array, mom: Array, lr: Array, rho: Array, momentum: Array, epsilon: Array, grad: Array
) -> tuple[Array, ...]:
    mg, ms = rho * mg + (1 - rho) * grad, rho * ms + (1 - rho) * grad**2
    mom = momentum * mom + lr * grad / np.sqrt(ms - mg**2 + epsilon)
    return var - mom, mg, ms, mom


def _follow_the_leader(
    var: Array, accum: Array, linear: Array, grad: Array, lr: Array, l1: Array, l2: Array, power: Array
) -> tuple[Array, ...]:
    total = accum + grad**2
    linear = linear + grad - (total**-power - accum**-power) / lr * var
    found = (np.sign(linear) * l1 - linear) / (total**-power / lr + 2 * l2)
    return np.where(np.abs(linear) > l1, found, 0), total, linear


def _lamb(grad: Array, v: Array, m: Array, var: Array, *numbers: Array) -> tuple[Array, ...]:
    beta1, rest1, beta2, rest2, epsilon, steps, decays, decay = numbers
    v, m = v * beta2 + grad**2 * rest2, m * beta1 + grad * rest1
    step = (m / (1 - beta1**steps)) / (np.sqrt(v / (1 - beta2**steps)) + epsilon)
    return step + var * decay * decays, v, m


def _by_norms(w_norm: Array, g_norm: Array, lr: Array, update: Array, param: Array) -> tuple[Array, ...]:
    ratio = w_norm / g_norm if w_norm > 0 and g_norm > 0 else 1
    return (param - ratio * lr * update,)


ADA_DELTA = _step(
    "ApplyAdadeltaD",
    "var = var - lr * sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad",
    "var accum accum_update lr rho epsilon grad",
    "var accum accum_update",
    _ada_delta,
)
ADA_MAX = _step(
    "ApplyAdaMaxD",
    "var = var - lr / (1 - beta1_power) * m / (v + epsilon), v = max(beta2 * v, |grad|)",
    "var m v beta1_power lr beta1 beta2 epsilon grad",
    "var m v",
    _ada_max,
)
ADA_GRAD_V2 = _step(
    "ApplyAdagradV2D",
    "var = var - lr * grad / (sqrt(accum) + epsilon), accum = accum + grad^2",
    "var accum lr grad",
    "var accum",
    _ada_grad,
    "epsilon",
)
PROXIMAL_ADA_GRAD = _step(
    "ApplyProximalAdagradD",
    "var = soft(var - r * grad, r * l1) / (1 + r * l2), r = lr / sqrt(accum), accum = accum + grad^2",
    "var accum lr l1 l2 grad",
    "var accum",
    _proximal_ada_grad,
)
AMSGRAD = _step(
    "ApplyAdamWithAmsgradV2",
    "var = var - lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(vhat) + epsilon), vhat = max(vhat, v)",
    "var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad",
    "var m v vhat",
    _amsgrad,
)
CENTERED_RMS_PROP = _step(
    "ApplyCenteredRMSProp",
    "var = var - mom, mom = momentum * mom + lr * grad / sqrt(ms - mg^2 + epsilon)",
    "var mg ms mom lr rho momentum epsilon grad",
    "var mg ms mom",
    _centered,
)
FTRL = _step(
    "ApplyFtrl",
    "var = soft(-linear, l1) / (accum^-lr_power / lr + 2 * l2), accum = accum + grad^2",
    "var accum linear grad lr l1 l2 lr_power",
    "var accum linear",
    _follow_the_leader,
)
LAMB = _step(
    "LambApplyOptimizerAssign",
    "output0 = m / (1 - mul0_x^steps) / (sqrt(v / (1 - mul2_x^steps)) + add2_y) + "
    "input3 * weight_decay_rate * do_use_weight; v = inputv * mul2_x + grad^2 * mul3_x, "
    "m = inputm * mul0_x + grad * mul1_x",
    "grad inputv inputm input3 mul0_x mul1_x mul2_x mul3_x add2_y steps do_use_weight weight_decay_rate",
    "output0 inputv inputm",
    _lamb,
    further="input3",
)
LAMB_WEIGHTS = _step(
    "LambApplyWeightAssign",
    "input_param = input_param - lr * update * input0 / input1, the norms of both; without the ratio where one is 0",
    "input0 input1 input2 input3 input_param",
    "input_param",
    _by_norms,
    further="input3",
)
