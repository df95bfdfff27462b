"""What a look makes of an unsure delivery."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.domain.outcome import Ambiguous, Configuration, Outcome, Permanent, Scope, Suppressed, Throttled, Transient
from shared.domain.proof import (
    Absent,
    Asked,
    Callback,
    Lookup,
    Nothing,
    Pending,
    Proof,
    Refused,
    Replay,
    Resolution,
    Taken,
    Unprovable,
    Verdict,
    first_look_s,
    judge,
)
from shared.domain.receipts import ReceiptStatus, earlier_than
from shared.domain.retry import RetryPolicy
from shared.domain.states import DeliveryStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
D = DeliveryStatus
CHES = Lookup(waits_s=(30.0, 90.0, 480.0), absent_after_s=600.0)
ACS = Replay(window_s=240.0, wait_s=600.0)
TWILIO = Callback(wait_s=600.0)


def verdict(
    proof: Proof,
    resolution: Resolution = CHES,
    *,
    ago_s: float = 30.0,
    absences: int = 0,
    attempts: int = 1,
    lost_ago_s: float | None = None,
) -> Verdict:
    lost_since = None if lost_ago_s is None else NOW - timedelta(seconds=lost_ago_s)
    asked = Asked(attempts, NOW - timedelta(seconds=ago_s), absences, lost_since)
    return judge(proof, resolution, asked, RetryPolicy(), now=NOW, jitter=0.0)


def again_s(found: Verdict) -> float | None:
    assert found.status is D.UNSURE
    return None if found.prove_at is None else (found.prove_at - NOW).total_seconds()


def test_what_the_provider_has_is_sent() -> None:
    found = verdict(Taken("ref-1", receipt=ReceiptStatus.FAILED))
    assert (found.status, found.ref, found.uses_attempt, found.settles) == (D.SENT, "ref-1", True, True)
    assert found.receipt is ReceiptStatus.FAILED


@pytest.mark.parametrize(
    ("ago_s", "absences", "expected"),
    [
        (150.0, 0, 90.0),  # the first look proves nothing, however late
        (10_000.0, 0, 90.0),
        (240.0, 1, 480.0),  # the second is too early
        (599.0, 1, 480.0),
        (599.0, 7, 480.0),
    ],
)
def test_absence_is_not_believed_at_one_look_nor_early(ago_s: float, absences: int, expected: float) -> None:
    found = verdict(Absent(), ago_s=ago_s, absences=absences)
    assert again_s(found) == expected
    assert found.saw_absence


def test_a_message_absent_twice_and_long_after_the_call_is_owed_again_with_its_attempt_back() -> None:
    found = verdict(Absent(), ago_s=600.0, absences=1)
    assert (found.status, found.uses_attempt, found.next_attempt_at) == (D.OWED, False, None)


def test_a_message_that_is_lost_for_longer_than_an_outage_is_waited_out_is_dead_lettered() -> None:
    assert verdict(Absent(), ago_s=600.0, absences=1, lost_ago_s=71 * 3600.0).status is D.OWED
    found = verdict(Absent(), ago_s=600.0, absences=1, lost_ago_s=72 * 3600.0)
    assert (found.status, found.uses_attempt) == (D.DEAD_LETTERED, False)
    assert "MAX_OUTAGE_WAIT_HOURS" in found.detail


def test_a_message_looked_for_only_days_after_its_call_was_lost_once_and_not_for_days() -> None:
    assert verdict(Absent(), ago_s=100 * 3600.0, absences=1).status is D.OWED
    assert verdict(Refused(Transient(Scope.PROVIDER, "x")), ago_s=100 * 3600.0).status is D.RETRYING


def test_absence_proves_nothing_where_the_provider_does_not_find_by_our_key() -> None:
    assert again_s(verdict(Absent(), TWILIO, ago_s=700.0, absences=5)) is None


def test_a_look_that_fails_is_repeated_and_counts_as_no_absence() -> None:
    found = verdict(Pending("the look-up failed"), ago_s=100_000.0, absences=1)
    assert again_s(found) == 60.0
    assert not found.saw_absence


def test_looks_end_with_the_longest_outage_that_is_waited_out() -> None:
    assert again_s(verdict(Pending("down"), ago_s=72 * 3600.0)) is None


def test_the_provider_may_name_the_time_of_the_next_look() -> None:
    assert again_s(verdict(Pending("queued", again_s=150.0))) == 150.0


def test_a_replay_is_repeated_inside_its_window_then_a_receipt_is_waited_for_then_it_is_parked() -> None:
    assert again_s(verdict(Pending("in progress"), ACS, ago_s=20.0)) == 10.0
    assert again_s(verdict(Pending("in progress"), ACS, ago_s=235.0)) == 365.0
    assert again_s(verdict(Pending("the window is over"), ACS, ago_s=300.0)) == 300.0
    assert again_s(verdict(Pending("the window is over"), ACS, ago_s=600.0)) is None


def test_what_cannot_be_proved_is_parked_with_its_evidence() -> None:
    found = verdict(Unprovable("nobody will tell", {"relay": "relay.example.com"}), Nothing())
    assert again_s(found) is None
    assert found.evidence == {"relay": "relay.example.com"}


@pytest.mark.parametrize(
    ("outcome", "attempts", "status"),
    [
        (Permanent(Scope.RECIPIENT, "550", "no such person"), 1, D.FAILED),
        (Suppressed("21610"), 1, D.SUPPRESSED),
        (Transient(Scope.RECIPIENT, "451"), 1, D.RETRYING),
        (Transient(Scope.RECIPIENT, "451"), 5, D.DEAD_LETTERED),
    ],
)
def test_a_refusal_found_later_is_what_the_call_would_have_come_to(
    outcome: Outcome, attempts: int, status: DeliveryStatus
) -> None:
    found = verdict(Refused(outcome), attempts=attempts)
    assert (found.status, found.uses_attempt, found.outcome) == (status, True, outcome)
    assert (found.next_attempt_at is not None) == (status is D.RETRYING)


@pytest.mark.parametrize(
    "outcome", [Ambiguous("timeout"), Throttled("429"), Configuration(Scope.PROVIDER, "401")], ids=lambda o: o.code
)
def test_an_answer_that_says_nothing_of_the_call_in_question_proves_nothing(outcome: Outcome) -> None:
    assert again_s(verdict(Refused(outcome))) == 60.0


def test_when_the_first_look_is() -> None:
    assert [first_look_s(each) for each in (CHES, ACS, TWILIO, Nothing())] == [30.0, 10.0, 600.0, None]


def test_receipts_move_forward_only_and_the_first_end_stays_but_for_a_delivery() -> None:
    assert earlier_than(ReceiptStatus.QUEUED) == ()
    assert set(earlier_than(ReceiptStatus.FAILED)) == {ReceiptStatus.QUEUED, ReceiptStatus.SENDING, ReceiptStatus.SENT}
    assert ReceiptStatus.UNDELIVERED not in earlier_than(ReceiptStatus.FAILED)
    assert ReceiptStatus.FAILED in earlier_than(ReceiptStatus.DELIVERED)
    assert ReceiptStatus.DELIVERED in earlier_than(ReceiptStatus.READ)
    assert ReceiptStatus.DELIVERED not in earlier_than(ReceiptStatus.FAILED)
