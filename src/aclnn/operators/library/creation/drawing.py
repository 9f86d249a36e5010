"""Random numbers: aclnnInplaceNormal, aclnnInplaceUniform …, dropouts and their masks with one bit per element.

The documents do not specify the numbers of a seed; here they are those of NumPy's Philox generator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    KERNEL_OF_THE_PRODUCT,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    extents,
    fits,
    floating,
    limited_dims,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    size_is,
    value_is,
    where_supported,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, camel, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import (
    INTEGERS,
    MODERN,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    WITH_TRAINING,
    attribute,
    library_operator,
    on_950,
    scalar,
    support,
    tensor_in,
    tensor_out,
)

# Masks consist of whole vectors of 128 bits.
_VECTOR_BYTES = 16
_PROBABILITY = Parameter("prob", "prob", Kind.DOUBLE, "the probability that an element becomes 0")


def _seeds(kind: Kind) -> tuple[Parameter, Parameter]:
    return (
        Parameter("seed", "seed", kind, "the generator's seed"),
        Parameter("offset", "offset", kind, "the offset of the random stream"),
    )


def mask_bytes(elements: int) -> int:
    """Return the number of bytes of a mask with one bit per element."""
    return -(-elements // (8 * _VECTOR_BYTES)) * _VECTOR_BYTES


_between = value_is("a number from 0 to 1", lambda got: 0 <= got <= 1, "prob")


def _uint8(name: str) -> Check:
    return dtype_in({D.UINT8}, name)


def _whole_mask(call: Call) -> str | None:
    expected = mask_bytes(math.prod(call["shape"]))
    if call["out"].size == expected:
        return None
    return f"out: expected {expected} elements (a bit for each element of shape), got {extents(call['out'].shape)}"


def _large_mask(call: Call) -> str | None:
    expected = mask_bytes(call["self"].size)
    if call["mask"].size >= expected:
        return None
    return f"mask: expected at least {expected} elements, got shape {extents(call['mask'].shape)}"


def generator_of(call: Call | Mapping[str, int]) -> Callable[[], np.random.Generator]:
    """Return a factory of a random stream per seed and offset: an offset into one stream would repeat its numbers."""
    key = [call[name] % 2**64 for name in ("seed", "offset")]
    return lambda: np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))


def random_bits(source: np.random.Generator, size: int, prob: float) -> Any:
    """Draw bytes of bits that are 0 with a probability, the lowest bit of a byte first."""
    return np.packbits(source.random(8 * size, np.float32) >= np.float32(prob), bitorder="little")


def _drawing(call: Call) -> Library | None:
    shape, prob, generator = call["out"].shape, call["prob"], generator_of(call)
    size = math.prod(shape)
    return Library(lambda: random_bits(generator(), size, prob).reshape(shape), (), ("out",)) if size else None


def _kept(x: Any, mask: Any) -> Any:
    """Return a mask's bit for each element; its bytes may be stored as the elements' type, one per number."""
    return np.unpackbits(np.ravel(mask).astype(np.uint8, copy=False), count=x.size, bitorder="little").reshape(x.shape)


def masked(self: Any, mask: Any, prob: float) -> Any:
    """Zero the elements without a bit in the mask, and scale the others."""
    if prob == 0:
        return self
    if prob == 1:
        return np.zeros_like(self)
    return np.where(_kept(self, mask), self / np.float32(1 - prob), np.float32(0))


def _dropout_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    prob, shape, generator = call["p"], call["maskOut"].shape, generator_of(call)

    def drop(x: Any) -> tuple[Any, Any]:
        mask = random_bits(generator(), math.prod(shape), prob)
        return masked(x, mask, prob), mask.reshape(shape)

    return Library(drop, ("input",), ("out", "maskOut"))


def _trained_work(call: Call) -> Library | None:
    """Draw no mask if all elements are kept, or none."""
    prob = call["p"] if call["train"] else 0
    if call["out"].size == 0 or 0 < prob < 1:
        return _dropout_work(call)
    return Library(lambda x: masked(x, None, prob), ("input",), ("out",))


def _exact_mask(of: str, mask: str) -> Check:
    def violation(call: Call) -> str | None:
        expected = mask_bytes(call[of].size)
        if call[mask].size == expected:
            return None
        return f"{mask}: expected {expected} elements (a bit for each of {of}), got {extents(call[mask].shape)}"

    return rule(f"a bit for each element: {mask}", violation)


def _removed(scale: float) -> float:
    """Return the probability with which elements were dropped."""
    return 1 - 1 / scale if scale else 1.0


def _drawn(
    name: str,
    summary: str,
    formula: str,
    parameters: tuple[Parameter, ...],
    checks: tuple[Check, ...],
    draw: Callable[[np.random.Generator, Mapping[str, Any], Any], Any],
    dtypes: Collection[D],
    seed: Kind = Kind.INT64,
    header: str | None = None,
    products: Collection[Product] = WITH_INFERENCE,
    taken: Callable[[Product], Collection[D]] | None = None,
) -> Operator:
    """Declare a function that fills a tensor with random numbers, drawn from the parameters' values by name.

    A parameter ``self`` only describes ``out``; ``taken`` are its data types if they depend on the product.
    """
    out = next((each.name for each in parameters if each.kind is Kind.OUTPUT), "selfRef")
    given = tuple(each.name for each in parameters if each.kind in (Kind.INPUT, Kind.SCALAR) and each.name != "self")
    attributes = tuple(each.name for each in parameters if not each.is_tensor and each.name not in given)

    def work(call: Call) -> Library | None:
        generator, filled, numbers = generator_of(call), call[out], {name: call[name] for name in attributes}

        def function(*values: Any) -> Any:
            return draw(generator(), numbers | dict(zip(given, values, strict=True)), filled)

        return Library(function, given, (out,)) if filled.size else None

    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=(
            *(
                [tensor_out("selfRef", "the tensor to overwrite", const=name.startswith("inplace_"))]
                if out == "selfRef"
                else ()
            ),
            *(each for each in parameters if each.kind is not Kind.OUTPUT),
            *_seeds(seed),
            *(each for each in parameters if each.kind is Kind.OUTPUT),
        ),
        support=support(dtypes, products),
        checks=(present(out, *given), dtype_in(taken or where_supported(dtypes), out), limited_dims(out), *checks),
        work=work,
        in_header_of=header or name.removeprefix("inplace_"),
    )


def _limits(kind: Kind) -> tuple[Parameter, Parameter]:
    """Declare the limits, which the documents call from and to; `from` is a reserved word in Python."""
    return attribute("low", kind, "the least"), attribute("high", kind, "what they stay below")


def _floats(*names: str) -> tuple[Check, ...]:
    return dtype_in(where_supported(REAL_FLOATING), *names), limited_dims(*names)


def _ordered(strictly: bool) -> Check:
    words = "less than high" if strictly else "at most high"

    def violation(call: Call) -> str | None:
        low, high = call["low"], call["high"]
        fits = low < high if strictly else low <= high
        return None if fits else f"low: expected {words}, {high}, got {low}"

    return rule(f"{words}: low", violation)


def _rows(call: Call) -> str | None:
    shape = call["self"].shape
    return None if len(shape) in (1, 2) else f"self: expected 1 or 2 dimensions, got {len(shape)}: {extents(shape)}"


def _samples(call: Call) -> str | None:
    most = call["self"].shape[-1]
    got = call["numsamples"]
    if got >= 1 and (call["replacement"] or got <= most):
        return None
    limit = "at least 1" if call["replacement"] else f"from 1 to {most} (the columns of self) without replacement"
    return f"numsamples: expected {limit}, got {got}"


def _multinomial_work(call: Call) -> Library | None:
    if call["out"].size == 0 or call["self"].size == 0:
        return None
    generator, count, again, shape = generator_of(call), call["numsamples"], call["replacement"], call["out"].shape

    def draw(self: Any) -> Any:
        rows, source = self.astype(np.float64).reshape(-1, self.shape[-1]), generator()
        if not again:
            # The order statistics of exponential times with different rates have the required distribution.
            times = source.exponential(size=rows.shape) / rows
            return np.argsort(times, 1, kind="stable")[:, :count].reshape(shape)
        sums = rows.cumsum(1)
        points = source.random((len(rows), count)) * sums[:, -1:]
        found = [np.searchsorted(edges, row, "right") for edges, row in zip(sums, points, strict=True)]
        return np.minimum(np.stack(found), (rows > 0).cumsum(1).argmax(1)[:, None]).reshape(shape)

    return Library(draw, ("self",), ("out",))


_NUMBERS = (*REAL_FLOATING, *INTEGERS)
_MEAN, _STD = "their mean", "their standard deviation"
#: Integers up to these powers of two are exact.
_DIGITS = {D.FLOAT: 24, D.FLOAT16: 11, D.BF16: 8}


def _normal(generator: np.random.Generator, given: Mapping[str, Any], out: Any) -> Any:
    return given["mean"] + given["std"] * generator.standard_normal(out.shape)


def _normals(name: str, summary: str, mean: Parameter, std: Parameter, checks: tuple[Check, ...]) -> Operator:
    formula = "out = numbers of mean and standard deviation std"
    return _drawn(
        name, summary, formula, (mean, std, tensor_out()), checks, _normal, REAL_FLOATING, header="normal_out"
    )


def _uniform(generator: np.random.Generator, given: Mapping[str, Any], out: Any) -> Any:
    low, high = given["low"], given["high"]
    drawn: Any = generator.random(out.shape, np.float32 if out.dtype in _DIGITS else np.float64)
    if out.dtype in _DIGITS:
        # With more digits the largest would be rounded to high.
        steps = np.float32(2 ** _DIGITS[out.dtype])
        drawn = np.floor(drawn * steps) / steps
    numbers = low + (high - low) * drawn
    if out.dtype in _DIGITS:
        numbers = numbers.astype(out.dtype.numpy).astype(np.float32)
    return np.where(numbers >= high, numbers.dtype.type(low), numbers)


def _up_to_the_greatest(generator: np.random.Generator, given: Mapping[str, Any], out: Any) -> Any:
    if out.dtype in _DIGITS:
        greatest = 2 ** _DIGITS[out.dtype]
    else:
        greatest = 1 if out.dtype == D.BOOL else int(np.iinfo(out.dtype.numpy).max)
    return generator.integers(0, greatest, out.shape, endpoint=True)


_SLOPES = where_supported((D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE))


def _rrelu(prefix: str, x: str, out: str) -> Operator:
    """Declare the function with an output of its own, or its in-place variant."""
    own = x != out

    def room(call: Call) -> str | None:
        size, got = call[x].size, call["noise"]
        if not call["training"] or got.size >= size:
            return None
        return f"noise: expected at least {size} elements (those of {x}), got {extents(got.shape)}"

    def work(call: Call) -> Library | None:
        if call[x].size == 0 or call["noise"].size == 0:
            return None
        if not call["training"]:
            return Library(
                lambda self, lower, upper: np.where(self > 0, self, self * ((float(lower) + float(upper)) / 2)),
                (x, "lower", "upper"),
                (out,),
            )
        generator, dtype = generator_of(call), call["noise"].dtype.numpy

        def draw(self: Any, noise: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
            slopes = float(lower) + (float(upper) - float(lower)) * generator().random(self.shape)
            # Gradients use the rounded factor.
            factors = np.where(self > 0, 1.0, slopes).astype(dtype).astype(self.dtype)
            kept = noise.reshape(-1)[self.size :]
            replaced, result = np.concatenate([factors.reshape(-1), kept]).reshape(noise.shape), self * factors
            return (replaced, result) if own else (result, replaced)

        outputs = ("noise", out) if own else (out, "noise")
        return Library(draw, (x, "noise", "lower", "upper"), outputs)

    return Operator(
        name=f"{prefix}rrelu_with_noise",
        function=f"aclnn{prefix.removesuffix('_').capitalize()}RReluWithNoise",
        summary="Randomized leaky ReLU, which also writes its slopes.",
        formula=f"{out} = {x} * noise, noise = 1 where {x} > 0, else uniform from lower to upper",
        parameters=(
            tensor_in(x, "x") if own else tensor_out(x, "x, replaced by the result", const=True),
            tensor_out("noise", "the slopes, written in training", const=True),
            scalar("lower", "the lower bound of the slopes"),
            scalar("upper", "the upper bound of the slopes"),
            attribute(
                "training", Kind.BOOL, "whether to draw the slopes; otherwise they are the mean of lower and upper"
            ),
            *_seeds(Kind.INT64),
            *((tensor_out(),) if own else ()),
        ),
        support=support(FLOATING, WITH_TRAINING),
        checks=(
            dtype_in(floating, x),
            dtype_in(_SLOPES, "lower", "upper"),
            *((same_dtype(out, x),) if own else ()),
            same_dtype("noise", x),
            *((same_shape(out, x),) if own else ()),
            rule("room for the slopes: noise", room),
            *((same_format(out, x),) if own else ()),
            same_format("noise", x),
        ),
        work=work,
        numbers=("lower", "upper"),
        stream_type="const aclrtStream ",
        in_header_of="rrelu_with_noise",
    )


_TRUTHS = (*_NUMBERS, D.BOOL)


def _bernoullis(is_in_place: bool) -> tuple[Operator, Operator]:
    """Declare Bernoulli draws with the probability from a number, and from a tensor."""
    prefix, out = ("inplace_", "selfRef") if is_in_place else ("", "out")
    like = () if is_in_place else (tensor_in("self", "a tensor like out"),)
    result = () if is_in_place else (tensor_out(),)
    alike = () if is_in_place else (present("self"), same_dtype("out", "self"), same_shape("out", "self"))
    number = scalar("prob", "the probability of a one")
    numbers = tensor_in("prob", "the probability of a one per flattened element, repeated if there are fewer")
    probable = dtype_in(where_supported(REAL_FLOATING), "prob")

    def ones(generator: np.random.Generator, given: Mapping[str, Any], out: Any) -> Any:
        chances = given["prob"]
        return generator.random(out.shape) < (np.resize(chances, out.shape) if np.size(chances) > 1 else chances)

    def declared(name: str, words: str, prob: Parameter, checks: tuple[Check, ...]) -> Operator:
        return _drawn(
            f"{prefix}{name}",
            f"{'Fill a tensor with ones' if is_in_place else 'Ones'} and zeros{words}.",
            f"{out} = 1 with probability prob, else 0",
            (*like, prob, *result),
            (*alike, *checks, public_format(out)),
            ones,
            (*_TRUTHS, *UNSIGNED),
            header="bernoulli",
            products=WITH_TRAINING,
            taken=on_950(UNSIGNED, _TRUTHS),
        )

    return (
        declared(
            "bernoulli",
            "",
            number,
            (
                probable,
                value_is("a number from 0 to 1", lambda got: 0 <= got <= 1, "prob", of=lambda got: got.value.item()),
            ),
        ),
        declared("bernoulli_tensor", ", each of its own probability", numbers, (probable, limited_dims("prob"))),
    )


_NORMAL = _drawn(
    "inplace_normal",
    "Fill a tensor with normally distributed numbers.",
    "selfRef = numbers of mean and standard deviation std",
    (attribute("mean", Kind.FLOAT, _MEAN), attribute("std", Kind.FLOAT, _STD)),
    (value_is("a number of at least 0", lambda got: got >= 0, "std"),),
    _normal,
    _TRUTHS,
)


def _seeded_by_tensors(operator: Operator) -> Operator:
    """Return the operator with its seed and part of its offset in tensors, which each execution of a graph rereads."""
    kind = operator.parameter("offset").kind
    dtypes = {D.INT64, D.UINT64} if kind is Kind.UINT64 else {D.INT64}
    tensors = {
        "seed": (
            tensor_in("seedTensor", "the generator's seed"),
            tensor_in("offsetTensor", "the offset of the random stream"),
        ),
        "offset": (Parameter("offset", "offset", kind, "the offset added to offsetTensor"),),
    }

    def drawing(call: Call, seed: int, offset: int) -> Library | None:
        work = operator.work(Call(operator, {**call.arguments, "seed": seed, "offset": offset}, call.product))
        assert work is None or isinstance(work, Library)
        return work

    def work(call: Call) -> Library | None:
        planned = drawing(call, 0, 0)
        if planned is None:
            return None

        def function(*values: Any) -> Any:
            *operands, seed, offset = values
            seeded = drawing(call, seed.item(), offset.item() + call["offset"])
            assert seeded is not None
            return seeded.function(*operands)

        return Library(function, (*planned.inputs, "seedTensor", "offsetTensor"), planned.outputs)

    return dataclasses.replace(
        operator,
        name=f"{operator.name}_tensor",
        function=camel(f"{operator.name}_tensor"),
        summary=operator.summary.removesuffix(".") + ", with the seed in a tensor.",
        parameters=tuple(new for old in operator.parameters for new in tensors.get(old.name, (old,))),
        support={product: operator.support[product] for product in MODERN if product in operator.support},
        checks=(
            *operator.checks,
            present("seedTensor", "offsetTensor"),
            dtype_in(dtypes, "seedTensor", "offsetTensor"),
            shape_is("one element", lambda call: (1,), "seedTensor", "offsetTensor"),
        ),
        work=work,
        in_header_of=operator.in_header_of or operator.name,
    )


_DROPOUT_MASK = Operator(
    name="dropout_gen_mask_v2",
    summary="Generate a dropout mask.",
    formula="out = bits, each 1 with probability 1 - prob",
    parameters=(
        Parameter("shape", "shape", Kind.INT_ARRAY, "the shape of the tensor to mask"),
        _PROBABILITY,
        *_seeds(Kind.INT64),
        Parameter("probDataType", "prob_data_type", Kind.DTYPE, "the data type of the tensor to mask"),
        tensor_out("out", "the mask; UINT8"),
    ),
    support=support((D.UINT8,), WITH_INFERENCE),
    checks=(present("shape", "out"), _uint8("out"), _between, rule("a bit for each element: out", _whole_mask)),
    work=_drawing,
    in_header_of="dropout_gen_mask",
)
_DROPOUT = Operator(
    name="dropout_v3",
    summary="Dropout, which also writes its mask.",
    formula="out = input / (1 - p) where maskOut, 0 elsewhere",
    parameters=(
        tensor_in("input", "x"),
        Parameter("optionalNoiseShape", "noise_shape", Kind.INPUT, "must be null", optional=True),
        Parameter("p", "p", Kind.DOUBLE, "the probability that an element becomes 0"),
        *_seeds(Kind.INT64),
        tensor_out(),
        tensor_out("maskOut", "the mask, one bit per element; UINT8"),
    ),
    support=support(FLOATING, WITH_INFERENCE),
    checks=(
        present("input", "out", "maskOut"),
        dtype_in(floating, "input"),
        castable_from(lambda call: call["input"].dtype, "out"),
        _uint8("maskOut"),
        rule(
            "from 0 to 1: p",
            lambda call: None if 0 <= call["p"] <= 1 else f"p: expected a number from 0 to 1, got {call['p']}",
        ),
        rule(
            "no shape of noise: optionalNoiseShape",
            lambda call: (
                None
                if call["optionalNoiseShape"] is None
                else f"optionalNoiseShape: expected null, got {extents(call['optionalNoiseShape'].shape)}"
            ),
        ),
        limited_dims("input"),
        same_shape("out", "input"),
        _exact_mask("input", "maskOut"),
    ),
    work=_dropout_work,
)
_WITHOUT_NOISE = [check for check in _DROPOUT.checks if "optionalNoiseShape" not in check.name]
_TRAINED_DROPOUT = Operator(
    name="dropout",
    summary="Dropout in training, which also writes its mask if it draws one.",
    formula="out = input / (1 - p) where maskOut, 0 elsewhere; input unless train",
    parameters=(
        tensor_in("input", "x"),
        Parameter("p", "p", Kind.DOUBLE, "the probability that an element becomes 0"),
        attribute("train", Kind.BOOL, "whether to drop elements"),
        *_seeds(Kind.INT64),
        tensor_out(),
        tensor_out("maskOut", "the mask, one bit per element; UINT8"),
    ),
    support=support(FLOATING, WITH_TRAINING),
    checks=tuple(_WITHOUT_NOISE),
    work=_trained_work,
)
_DROPOUT_GRADIENT = library_operator(
    "dropout_backward",
    "out = gradOutput * scale where mask, 0 elsewhere",
    "Gradient of dropout.",
    (
        tensor_in("gradOutput", "the gradient with respect to the output"),
        tensor_in("mask", "the mask, one bit per element; UINT8"),
        attribute("scale", Kind.DOUBLE, "1 / (1 - p) for the forward probability p; 0 if p is 1"),
        tensor_out(),
    ),
    (
        dtype_in(floating, "gradOutput"),
        castable_from(lambda call: call["gradOutput"].dtype, "out"),
        _uint8("mask"),
        value_is("0 or a number of at least 1", lambda got: got == 0 or got >= 1, "scale"),
        limited_dims("gradOutput"),
        same_shape("out", "gradOutput"),
        _exact_mask("gradOutput", "mask"),
    ),
    lambda gradient, mask, scale: masked(gradient, mask, _removed(scale)),
    dtypes=FLOATING,
    products=WITH_TRAINING,
    attributes=("scale",),
)
_DROPOUT_V3_GRADIENT = library_operator(
    "dropout_v3_grad",
    "gradX = gradY * mask * scale, mask 0 or 1",
    "Gradient of dropout; nonfinite elements that are masked become NaN.",
    (
        tensor_in("gradY", "the gradient with respect to the output"),
        tensor_in("mask", "the mask, one bit per element; UINT8"),
        attribute("scale", Kind.DOUBLE, "any number; 1 / (1 - p) for the forward probability p"),
        tensor_out("gradX", "the gradient with respect to the input"),
    ),
    (
        *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
        present("gradY", "mask", "gradX"),
        castable_from(lambda call: call["gradY"].dtype, "gradX"),
        dtype_in(floating, "gradY"),
        _uint8("mask"),
        limited_dims("gradY"),
        same_shape("gradX", "gradY"),
        _exact_mask("gradY", "mask"),
    ),
    lambda gradient, mask, scale: gradient * _kept(gradient, mask) * np.float32(scale),
    dtype=lambda call: call["gradY"].dtype,
    dtypes=FLOATING,
    products=CLASS_950,
    attributes=("scale",),
)
_UNIFORM = _drawn(
    "inplace_uniform",
    "Fill a tensor with uniformly distributed numbers.",
    "selfRef = uniformly distributed numbers in [low, high)",
    _limits(Kind.DOUBLE),
    (_ordered(strictly=False),),
    _uniform,
    _NUMBERS,
    Kind.UINT64,
)
_RANDOM = _drawn(
    "inplace_random",
    "Fill a tensor with random integers.",
    "selfRef = uniformly distributed integers in [low, high)",
    _limits(Kind.INT64),
    (_ordered(strictly=True),),
    lambda generator, given, out: generator.integers(given["low"], given["high"], out.shape),
    _TRUTHS,
)
_RANDOM_TO_GREATEST = _drawn(
    "inplace_random_without_from_to",
    "Fill a tensor with random integers from 0 to the largest exact one of its data type.",
    "selfRef = uniformly distributed integers from 0 to the data type's largest",
    (),
    (),
    _up_to_the_greatest,
    (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS, D.BOOL),
    header="random",
    products=CLASS_950,
)
_MULTINOMIAL = Operator(
    name="multinomial",
    summary="Indices drawn from the multinomial distribution of each row.",
    formula="out = indices drawn with probabilities self / sum of self",
    parameters=(
        tensor_in("self", "the nonnegative weights of the indices; one row or several"),
        attribute("numsamples", Kind.INT64, "the number of indices to draw per row"),
        attribute("replacement", Kind.BOOL, "whether to draw with replacement"),
        *_seeds(Kind.INT64),
        tensor_out("out", "the indices; INT64"),
    ),
    support=support((D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)),
    checks=(
        present("self", "out"),
        dtype_in(where_supported((D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)), "self"),
        dtype_in({D.INT64}, "out"),
        rule("1 or 2 dimensions: self", _rows),
        rule("as many as there are: numsamples", _samples),
        shape_is("numsamples for each row", lambda call: (*call["self"].shape[:-1], call["numsamples"]), "out"),
    ),
    work=_multinomial_work,
)

OPERATORS = (
    dataclasses.replace(
        _DROPOUT_MASK,
        name="dropout_gen_mask",
        function=camel("dropout_gen_mask"),
        parameters=tuple(each for each in _DROPOUT_MASK.parameters if each.kind is not Kind.DTYPE),
    ),
    _DROPOUT_MASK,
    library_operator(
        "dropout_do_mask",
        "out = self / (1 - prob) where mask, 0 elsewhere",
        "Apply a dropout mask.",
        (tensor_in("self", "x"), tensor_in("mask", "the mask, one bit per element; UINT8"), _PROBABILITY, tensor_out()),
        (
            dtype_in(floating, "self"),
            castable_from(lambda call: call["self"].dtype, "out"),
            _uint8("mask"),
            _between,
            limited_dims("self"),
            same_shape("out", "self"),
            rule("a bit for each element: mask", _large_mask),
        ),
        masked,
        dtypes=FLOATING,
        attributes=("prob",),
    ),
    _DROPOUT,
    _TRAINED_DROPOUT,
    _DROPOUT_GRADIENT,
    _DROPOUT_V3_GRADIENT,
    _NORMAL,
    _normals(
        "normal_tensor_tensor",
        "Normally distributed numbers with elementwise mean and standard deviation.",
        tensor_in("mean", _MEAN),
        tensor_in("std", _STD),
        (*_floats("mean", "std"), broadcastable("std", "mean"), broadcast_shape_of("out", "mean", "std")),
    ),
    _normals(
        "normal_tensor_float",
        "Normally distributed numbers with elementwise mean.",
        tensor_in("mean", _MEAN),
        attribute("std", Kind.FLOAT, _STD),
        (*_floats("mean"), broadcastable("mean", "out"), broadcast_shape_of("out", "mean", "out")),
    ),
    _normals(
        "normal_float_tensor",
        "Normally distributed numbers with elementwise standard deviation.",
        attribute("mean", Kind.FLOAT, _MEAN),
        tensor_in("std", _STD),
        (*_floats("std"), same_shape("std", "out")),
    ),
    _normals(
        "normal_float_float",
        "Normally distributed numbers.",
        attribute("mean", Kind.FLOAT, _MEAN),
        attribute("std", Kind.FLOAT, _STD),
        (),
    ),
    _UNIFORM,
    *(each for is_in_place in (False, True) for each in _bernoullis(is_in_place)),
    _drawn(
        "sim_thread_exponential",
        "Fill a tensor with exponentially distributed numbers.",
        "selfRef = -ln(1 - u) / lambd, u uniformly distributed",
        (attribute("count", Kind.INT64, "the number of elements to draw"), attribute("lambd", Kind.DOUBLE, "the rate")),
        (
            value_is("a number greater than 0", lambda got: got > 0, "lambd"),
            size_is("count", lambda call: call["count"], "selfRef"),
        ),
        lambda generator, given, out: generator.standard_exponential(out.shape) / given["lambd"],
        FLOATING,
        products=MODERN,
    ),
    _RANDOM,
    _RANDOM_TO_GREATEST,
    _drawn(
        "randperm",
        "Random permutation of the integers below n.",
        "out = a permutation of 0 to n - 1",
        (attribute("n", Kind.INT64, "the number of integers"), tensor_out()),
        (fits("shape {}", lambda call, got: ((call["n"],), got.shape), "out"),),
        lambda generator, given, out: generator.permutation(given["n"]),
        _NUMBERS,
    ),
    _MULTINOMIAL,
    _rrelu("", "self", "out"),
    _rrelu("inplace_", "selfRef", "selfRef"),
    *map(
        _seeded_by_tensors,
        (*(_DROPOUT_MASK, _DROPOUT, _NORMAL, _UNIFORM), *(_RANDOM, _RANDOM_TO_GREATEST, _MULTINOMIAL)),
    ),
)
