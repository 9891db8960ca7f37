"""Each intersection against a slow reference, and the noise counted out."""

import math

import numba
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mirrormark.envs.raycaster import geometry

OUTSIDE = {
    "sphere": lambda x, y, z, length: math.sqrt(x * x + y * y + z * z) - 1,
    "capsule": lambda x, y, z, length: math.sqrt(x * x + y * y + max(abs(z) - length, 0.0) ** 2) - 1,
    "cylinder": lambda x, y, z, length: max(math.hypot(x, y), abs(z)) - 1,
    "box": lambda x, y, z, length: max(abs(x), abs(y), abs(z)) - 1,
}
"""Above zero outside; convex, so that along a ray it has one valley."""


def reference(shape, origin, direction, near, length):
    """Where the ray enters beyond near (None: nowhere), by search and halving; height of valley and start."""

    def height(t):
        return OUTSIDE[shape](*(o + t * d for o, d in zip(origin, direction)), length)

    low, high = near, near + 40.0
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if height(a) <= height(b):
            high = b
        else:
            low = a
    valley = (low + high) / 2
    if height(near) <= 0 or height(valley) > 0:
        return None, height(valley), height(near)
    outside, inside = near, valley
    for _ in range(100):
        middle = (outside + inside) / 2
        outside, inside = (outside, middle) if height(middle) <= 0 else (middle, inside)
    return outside, height(valley), height(near)


coordinate = st.floats(-4, 4, width=32)
triple = st.tuples(coordinate, coordinate, coordinate)


@pytest.mark.parametrize("shape", OUTSIDE)
@settings(max_examples=250, deadline=None)
@given(origin=triple, target=triple, near=st.floats(0, 2, width=32), length=st.floats(0, 3, width=32))
def test_a_ray_enters_where_the_slow_reference_says(shape, origin, target, near, length):
    direction = np.subtract(target, origin) * 0.5  # aimed near the shape, so that many rays hit
    size = np.linalg.norm(direction)
    assume(size > 0.3)
    direction = direction / size
    expected, depth, start = reference(shape, origin, direction, near, length)
    assume(abs(depth) > 1e-3 and abs(start) > 1e-3)  # neither grazing nor starting on the surface
    arguments = [np.float32(v) for v in (*origin, *direction, near)]
    if shape == "capsule":
        arguments.append(np.float32(length))
    found = getattr(geometry, f"hit_{shape}")(*arguments)
    if expected is None:
        assert found == geometry.FAR
    else:
        assert found == pytest.approx(expected, abs=3e-3)


@settings(max_examples=200, deadline=None)
@given(origin=triple, target=triple)
def test_a_plane_is_seen_from_above_only(origin, target):
    d = np.subtract(target, origin)
    assume(abs(d[2]) > 1e-2 and abs(origin[2]) > 1e-2)
    t = -origin[2] / d[2]
    x, y = origin[0] + t * d[0], origin[1] + t * d[1]
    assume(min(abs(abs(x) - 1), abs(abs(y) - 1), abs(t - 0.01)) > 1e-3)
    seen = origin[2] > 0 and d[2] < 0 and abs(x) < 1 and abs(y) < 1 and t > 0.01
    found = geometry.hit_plane(*(np.float32(v) for v in (*origin, *d)), np.float32(0.01))
    assert found == (pytest.approx(t, rel=1e-3) if seen else geometry.FAR)


@pytest.mark.parametrize("amplitude", [0, 1, 2, 5])
def test_noise_is_exactly_symmetric(amplitude):
    """Over all values of its 21 bits."""

    @numba.njit
    def count(amplitude):
        found = np.zeros(2 * amplitude + 1, np.int64)
        for bits in range(1 << 21):
            found[geometry.noise(np.uint64(bits), amplitude, 0) + amplitude] += 1
        return found

    found = count(amplitude)
    assert found.sum() == 1 << 21
    assert np.array_equal(found, found[::-1])
    assert np.ptp(found) <= 4


def test_biased_noise_is_evenly_from_minus_two_to_one():
    """D17, the public code's: over all values of its 21 bits."""

    @numba.njit
    def count():
        found = np.zeros(5, np.int64)
        for bits in range(1 << 21):
            found[geometry.noise(np.uint64(bits), 2, 1) + 2] += 1
        return found

    assert count().tolist() == [1 << 19] * 4 + [0]
