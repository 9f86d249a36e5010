"""PReLU's gradients for every kind of shape: with few and many channels, of any rank, and one weight for all."""

import math

import numpy as np
import pytest

from aclnn import prelu_backward

SHAPES = [(), (64,), (7, 5), (3, 40), (300, 8), (2, 3, 4), (4, 64, 3), (2, 3, 20, 20), (3, 2, 300), (2, 1, 3, 4, 5)]


@pytest.mark.parametrize("each", [False, True], ids=["one weight", "a weight for each channel"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_match_autograd_for_every_shape_of_weight(shape, each):
    rng = np.random.default_rng(math.prod(shape))
    dy, x = rng.normal(size=(2, *shape)).astype(np.float32)
    channels = shape[1] if each and len(shape) > 1 else 1
    weight = rng.normal(size=channels).astype(np.float32)
    slope = weight.reshape((1, -1) + (1,) * (len(shape) - 2)) if channels > 1 else weight.reshape(())
    dims = tuple(dim for dim in range(len(shape)) if channels == 1 or dim != 1)
    expected = np.where(x > 0, 0.0, dy.astype(np.float64) * x).sum(axis=dims)

    dx, dw = prelu_backward(dy, x, weight)
    np.testing.assert_array_equal(dx, np.where(x > 0, dy, slope * dy))
    np.testing.assert_allclose(dw, expected.reshape(dw.shape), rtol=2.0**-23, atol=1e-12)
