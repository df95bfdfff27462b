"""The size of the next chunk: it follows the time of those before."""

import pytest

from shared.domain.chunks import AIM_S, FIRST_CHUNK, LEAST_CHUNK, MOST_CHUNK, next_chunk


def test_a_chunk_that_was_quick_is_followed_by_larger_ones_up_to_the_most() -> None:
    size, sizes = FIRST_CHUNK, []
    for _ in range(6):
        size = next_chunk(size, done=size, took_s=0.01)
        sizes.append(size)
    assert sizes == [1_500, 2_250, 3_375, 5_000, 5_000, 5_000]


def test_a_chunk_that_took_too_long_is_followed_by_one_for_half_the_aim() -> None:
    assert next_chunk(5_000, done=5_000, took_s=4 * AIM_S) == 625
    assert next_chunk(5_000, done=17, took_s=4 * AIM_S) == 625
    assert next_chunk(1_000, done=1_000, took_s=60.0) == LEAST_CHUNK


@pytest.mark.parametrize(("done", "took_s"), [(1_000, AIM_S / 2), (1_000, AIM_S), (999, 0.001), (0, 0.001)])
def test_one_that_fits_or_was_not_full_says_nothing(done: int, took_s: float) -> None:
    assert next_chunk(FIRST_CHUNK, done=done, took_s=took_s) == FIRST_CHUNK < MOST_CHUNK
