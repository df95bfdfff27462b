"""Properties of the table of SMTP answers that no list of examples shows."""

import pytest

from shared.domain.outcome import Accepted, Ambiguous, NotAttempted, Outcome
from workers.providers.smtp_outcomes import outcome_of_loss, outcome_of_reply
from workers.providers.smtp_session import Reply, SmtpLost, Stage

BEFORE_THE_DOT = [stage for stage in Stage if stage is not Stage.DOT]


def every_refusal(stage: Stage) -> list[Outcome]:
    replies = [Reply(code, f"{code // 100}.{subject}.1", "words") for code in range(400, 600) for subject in range(8)]
    replies += [Reply(code, "", "words") for code in range(400, 600)]
    return [outcome_of_reply(stage, reply) for reply in replies]


@pytest.mark.parametrize("stage", list(Stage))
def test_a_refusal_is_proof_at_every_stage(stage: Stage) -> None:
    assert not any(isinstance(one, Ambiguous | Accepted | NotAttempted) for one in every_refusal(stage))


@pytest.mark.parametrize("stage", BEFORE_THE_DOT)
@pytest.mark.parametrize("timed_out", [True, False])
def test_nothing_lost_before_the_final_dot_is_ambiguous(stage: Stage, timed_out: bool) -> None:
    assert not isinstance(outcome_of_loss(SmtpLost(stage, "gone", timed_out=timed_out)), Ambiguous)
    assert not isinstance(outcome_of_reply(stage, Reply(-1, "", "what?")), Ambiguous)


def test_what_is_lost_or_unreadable_after_the_dot_is_ambiguous() -> None:
    assert isinstance(outcome_of_loss(SmtpLost(Stage.DOT, "gone")), Ambiguous)
    for code in (-1, 100, 199, 300, 354, 399, 600, 999):
        assert isinstance(outcome_of_reply(Stage.DOT, Reply(code, "", "what?")), Ambiguous)
