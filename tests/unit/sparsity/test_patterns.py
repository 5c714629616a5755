"""Patterns and their changes have the required properties, and equal references that are written differently."""

import math

import numpy as np
import pytest

from sparsity.patterns import (
    NEW,
    moved,
    pattern_steps,
    prune_fraction,
    random_pattern,
    rigl_change,
    set_change,
    shuffled,
)


def check(pattern, size, count):
    assert pattern.shape == (count,) and set(pattern) <= set(range(size)) and (np.diff(pattern) > 0).all()


def cases(count=40):
    """Yield random numbers of blocks, patterns, norms and fractions."""
    rng = np.random.default_rng(5)
    for number in range(count):
        size = int(rng.integers(1, 13)) * int(rng.integers(1, 13))
        kept = int(rng.integers(1, size + 1))
        norms = rng.integers(0, 6, kept).astype(float)  # many are equal
        yield number, size, random_pattern(size, kept, 7, number), norms, float(rng.uniform()), rng


def test_random_patterns_depend_only_on_their_key():
    for number, size, pattern, *_ in cases():
        check(pattern, size, len(pattern))
        np.testing.assert_array_equal(pattern, random_pattern(size, len(pattern), 7, number))
    size = 100
    assert not np.array_equal(random_pattern(size, 20, 1, 2), random_pattern(size, 20, 2, 1))


def test_random_patterns_are_uniform():
    counts = np.zeros(20)
    for number in range(2000):
        counts[random_pattern(20, 5, number)] += 1
    assert abs(counts - 500).max() < 5 * math.sqrt(2000 * 0.25 * 0.75)


def test_shuffle_is_the_same_with_every_numpy():
    assert shuffled(8, 1, 2, 3).tolist() == [1, 2, 4, 6, 5, 0, 7, 3]


def reference_dropped(pattern, norms, count):
    """Return the ``count`` smallest, by sorting pairs."""
    pairs = sorted((norm, index) for index, norm in enumerate(norms))
    return {int(pattern[index]) for _, index in pairs[:count]}


def test_set_equals_a_reference():
    """The reference uses sets: small blocks are dropped, and absent ones grow in the order of the shuffle."""
    for number, size, pattern, norms, fraction, _ in cases():
        before = set(pattern.tolist())
        absent = [block for block in range(size) if block not in before]
        count = min(int(fraction * len(before)), len(absent))
        dropped = reference_dropped(pattern, norms, count)
        order = shuffled(len(absent), 11, number)
        grown = {absent[index] for index in order[:count]}
        change = set_change(pattern, norms, fraction, size, 11, number)
        check(change.pattern, size, len(pattern))
        assert set(change.pattern.tolist()) == (before - dropped) | grown
        assert {int(b) for b in change.pattern[change.sources == NEW]} == grown


def test_rigl_equals_a_reference():
    for _, size, pattern, norms, fraction, rng in cases():
        gradients = rng.integers(0, 6, size).astype(float)
        before = set(pattern.tolist())
        count = min(int(fraction * len(before)), size - len(before))
        kept = before - reference_dropped(pattern, norms, count)
        candidates = sorted((b for b in range(size) if b not in kept), key=lambda b: (-gradients[b], b))
        change = rigl_change(pattern, norms, gradients, fraction)
        check(change.pattern, size, len(pattern))
        assert set(change.pattern.tolist()) == kept | set(candidates[:count])
        assert {int(b) for b in change.pattern[change.sources == NEW]} == set(candidates[:count])


def test_weights_follow_their_blocks_and_new_ones_are_zero():
    for number, size, pattern, norms, fraction, rng in cases():
        values, gradients = rng.normal(size=(len(pattern), 2, 2)), rng.integers(0, 6, size).astype(float)
        by_block = {int(block): value for block, value in zip(pattern, values)}
        for change in (
            set_change(pattern, norms, fraction, size, 1, number),
            rigl_change(pattern, norms, gradients, fraction),
        ):
            for block, source, value in zip(change.pattern, change.sources, moved(values, change)):
                expected = np.zeros((2, 2)) if source == NEW else by_block[int(block)]
                np.testing.assert_array_equal(value, expected)


def test_the_cosine_schedule_has_the_published_form():
    for step in range(0, 1001, 50):
        expected = 0.5 / 2 * (1 + math.cos(step * math.pi / 1000))
        assert prune_fraction(step, 1000, 0.5) == pytest.approx(expected, abs=1e-15)


def test_changes_are_evenly_spaced_within_the_run():
    assert pattern_steps(100, 4) == [20, 40, 60, 80]
    steps = pattern_steps(7038, 160)
    assert len(steps) == 160 and steps[0] > 0 and steps[-1] < 7038
    assert set(np.diff(steps)) <= {43, 44}
    assert pattern_steps(3, 160) == [1, 2]  # no more than there are updates
    assert pattern_steps(10, 0) == []
