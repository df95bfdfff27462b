import pytest

from shared.domain.pace import (
    BOUNDS_S,
    about,
    ahead_of,
    percent_done,
    percentile,
    quiet_minutes,
    run_began,
    sustained,
    time_left,
)


def test_percentiles_lie_within_their_bucket() -> None:
    took = {1: 50, 5: 40, 9: 10}
    assert percentile(took, 0.5) == pytest.approx(0.1)
    assert BOUNDS_S[7] <= (percentile(took, 0.95) or 0) <= BOUNDS_S[8]
    assert percentile({len(BOUNDS_S) + 1: 3}, 0.5) == BOUNDS_S[-1]
    assert percentile({}, 0.5) is None


@pytest.mark.parametrize(
    ("ago", "began"),
    [
        ([], None),
        ([0], 0),
        ([4, 2, 9], 9),
        ([2, 17, 33], 17),  # 16 minutes without it end a run
        ([16, 17], None),  # over
        ([*range(0, 106, 5)], 105),
    ],
)
def test_a_run_began_where_no_gap_is_before_it(ago: list[int], began: int | None) -> None:
    assert run_began(ago, gap=15) == began


@pytest.mark.parametrize(
    ("minutes", "rate"),
    [
        ([], 0),
        ([0, 0, 0, 0, 0], 0),
        ([60, 60, 60, 60, 60], 60),
        ([900, 60, 58, 62, 60, 61], 60),  # the sixth to last does not count
        ([60, 60, 0, 0, 60], 60),  # a hiccup
        ([60, 0, 0, 0, 0], 0),
        ([0, 0, 0, 20, 60], 60),  # it began within the fourth minute
        ([0, 0, 0, 0, 20], None),  # less than a full minute
    ],
)
def test_the_sustained_rate_is_the_median_of_full_minutes(minutes: list[int], rate: float | None) -> None:
    assert sustained(minutes) == rate


@pytest.mark.parametrize(
    ("minutes", "running", "rate"),
    [
        ([0, 0, 0, 0, 0], 7, None),  # it has just begun, and nobody says that nothing was sent
        ([60, 60, 0, 0, 0], 7, 24),  # it goes again
        ([60, 60, 0, 0, 0], 0, 0),
        ([1, 0, 0, 1, 0], 1, 0.4),  # one now and then
        ([0, 1, 0, 0, 1], 0, pytest.approx(1 / 3)),
        ([0, 0, 0, 1, 0], 1, None),
        ([60, 60, 60, 60, 60], 7, 60),  # what is not over does not count otherwise
    ],
)
def test_where_something_leaves_now_the_sustained_rate_is_not_nothing(
    minutes: list[int], running: int, rate: float | None
) -> None:
    assert sustained(minutes, running=running) == rate


@pytest.mark.parametrize(
    ("minutes", "quiet"), [([], 5), ([0] * 5, 5), ([9, 0, 0, 0, 0, 0], 5), ([0, 0, 9, 0, 0], 2), ([0, 0, 0, 0, 9], 0)]
)
def test_quiet_minutes_are_those_since_something_left(minutes: list[int], quiet: int) -> None:
    assert quiet_minutes(minutes) == quiet


def test_that_nothing_was_sent_is_said_of_the_minutes_in_which_it_is_so() -> None:
    def words(quiet_min: int) -> str:
        return time_left(ahead=9, per_minute=0, quiet_min=quiet_min).words

    assert words(1) == "nothing was sent in the last minute"
    assert words(3) == "nothing was sent in the last 3 min"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "under a minute"),
        (65, "about 1 min"),
        (9.4 * 60, "about 9 min"),
        (1_430, "about 25 min"),
        (58 * 60, "about 1 h"),
        (71 * 60, "about 1 h 10 min"),
        (5.4 * 3600, "about 5 h"),
        (3 * 86_400, "about 3 days"),
    ],
)
def test_a_time_left_is_rounded_words(seconds: float, words: str) -> None:
    assert about(seconds) == words
    assert time_left(ahead=round(seconds), per_minute=60).words == words


def test_without_a_rate_the_reason_stands_in_for_the_number() -> None:
    assert time_left(ahead=10, per_minute=None).words == "measuring the rate"
    assert time_left(ahead=10, per_minute=0).words == "nothing was sent in the last 5 min"
    circuit = time_left(ahead=10, per_minute=60, held_back="circuit open")
    assert (circuit.seconds, circuit.words) == (None, "circuit open")
    assert time_left(ahead=0, per_minute=None).seconds == 0


def test_a_wait_of_its_own_is_not_shortened_by_the_rate() -> None:
    assert time_left(ahead=10, per_minute=600, not_before_s=1_500).words == "about 25 min"
    assert time_left(ahead=0, per_minute=0, not_before_s=240).seconds == 240


def test_sends_of_a_channel_take_turns() -> None:
    assert ahead_of(100, []) == 100
    assert ahead_of(100, [1_000, 30]) == 230
    assert ahead_of(1_000, [100, 30], rest=7) == 1_137


def test_a_hundred_per_cent_is_said_only_when_all_is_settled() -> None:
    assert [percent_done(settled, 1_000) for settled in (0, 5, 500, 999, 1_000)] == [0, 0, 50, 99, 100]
