from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from shared.domain.requeue import (
    CANARY_PATIENCE_S,
    CanaryResult,
    CanaryStep,
    FailureFilter,
    LeftOut,
    OperationKind,
    canary_step,
    operation_id,
)
from shared.domain.states import Channel, DeliveryStatus

SEND = UUID("01a2163a-6f0e-7b32-8c1d-0a5b1c2d3e4f")
NOW = datetime(2027, 3, 28, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (FailureFilter(), "all dead-lettered or failed deliveries"),
        (
            FailureFilter(statuses=frozenset({DeliveryStatus.UNSURE}), channel=Channel.SMS, tenant="acme"),
            "all unsure text messages of tenant acme",
        ),
        (
            FailureFilter(send_id=SEND, signature="0123456789ab", since=NOW),
            (
                f"all dead-lettered or failed deliveries of send {SEND} with cause 0123456789ab"
                " settled since 2027-03-28 09:00:00 UTC"
            ),
        ),
        (
            FailureFilter(signature="0123456789ab", cause="CHES 400: Invalid domain"),
            "all dead-lettered or failed deliveries with cause “CHES 400: Invalid domain”",
        ),
        (FailureFilter(operation=SEND), "all dead-lettered or failed deliveries left by operation 01a2163a"),
        (FailureFilter(ids=((SEND, 1),)), "1 delivery named by its id, if dead-lettered or failed"),
        (FailureFilter(ids=((SEND, 1), (SEND, 2))), "2 deliveries named by their ids, if dead-lettered or failed"),
    ],
)
def test_a_filter_says_what_it_is(asked: FailureFilter, words: str) -> None:
    assert asked.words() == asked.as_json()["words"] == words


def test_a_restore_says_that_it_takes_what_was_discarded() -> None:
    words = FailureFilter().words(OperationKind.RESTORE)
    assert words == "all discarded (dead-lettered or failed) deliveries"
    assert FailureFilter().as_json(OperationKind.RESTORE)["words"] == words


@pytest.mark.parametrize("statuses", [(), (DeliveryStatus.SENT,), (DeliveryStatus.FAILED, DeliveryStatus.OWED)])
def test_only_what_failed_or_may_have_can_be_asked_for(statuses: tuple[DeliveryStatus, ...]) -> None:
    with pytest.raises(ValueError, match="can be requeued"):
        FailureFilter(statuses=frozenset(statuses))


def test_the_same_request_is_the_same_operation_and_another_is_another() -> None:
    def id_of(asked: FailureFilter, operator: str = "kim", as_of: datetime = NOW, accepts: bool = False) -> UUID:
        return operation_id(OperationKind.REQUEUE, asked, operator=operator, as_of=as_of, accepts_duplicates=accepts)

    one = FailureFilter(ids=((SEND, 1), (SEND, 2)))
    assert id_of(one) == id_of(FailureFilter(ids=((SEND, 2), (SEND, 1))))
    cause = FailureFilter(signature="0123456789ab")
    assert id_of(cause) == id_of(replace(cause, cause="what it is called by now"))
    others = [
        id_of(FailureFilter(ids=((SEND, 1), (SEND, 3)))),
        id_of(FailureFilter(send_id=SEND)),
        id_of(one, operator="lee"),
        id_of(one, as_of=NOW.replace(second=1)),
        id_of(one, accepts=True),
    ]
    assert len({id_of(one), *others}) == 6


@pytest.mark.parametrize(
    ("gone", "tried", "same", "waited_s", "step"),
    [
        (0, 0, 0, 0, CanaryStep(most=1)),
        (1, 0, 0, 5, CanaryStep(most=0)),
        (1, 0, 0, CANARY_PATIENCE_S, CanaryStep(most=10)),
        (1, 1, 0, 5, CanaryStep(most=10)),
        (4, 1, 0, 5, CanaryStep(most=7)),
        (11, 10, 0, 5, CanaryStep(most=0)),
        (11, 11, 5, 5, CanaryStep()),
        (11, 0, 0, CANARY_PATIENCE_S, CanaryStep()),
        (500, 11, 11, 5, CanaryStep()),
    ],
)
def test_a_few_go_first_and_the_rest_follows(
    gone: int, tried: int, same: int, waited_s: float, step: CanaryStep
) -> None:
    assert canary_step(CanaryResult(gone, tried, same, waited_s)) == step


@pytest.mark.parametrize(
    ("gone", "tried", "same", "stop"),
    [
        (1, 1, 1, "the first one that was tried again failed for the same cause as before"),
        (11, 11, 6, "of the first 11 tried again 6 failed for the same cause as before"),
    ],
)
def test_the_rest_stays_when_most_of_the_first_fail_for_the_same_cause(
    gone: int, tried: int, same: int, stop: str
) -> None:
    assert canary_step(CanaryResult(gone, tried, same, 1)).stop == stop


@pytest.mark.parametrize(
    ("gone", "same", "others", "stop"),
    [
        (11, 2, 4, "of the first 11 tried again 2 failed for the same cause as before, 4 for good for another"),
        (11, 2, 3, None),
        (1, 0, 1, None),
    ],
)
def test_the_rest_stays_when_most_of_the_first_fail_for_good_whatever_the_cause(
    gone: int, same: int, others: int, stop: str | None
) -> None:
    assert canary_step(CanaryResult(gone, gone, same, 1, others)).stop == stop


def test_one_alone_that_was_tried_in_time_is_told_by_how_it_failed() -> None:
    stop = canary_step(CanaryResult(11, 1, 0, CANARY_PATIENCE_S, 1)).stop
    assert stop == "the first one that was tried again failed for good for another cause"


def test_every_reason_has_its_words() -> None:
    assert all(why.words for why in LeftOut)
