from datetime import UTC, datetime

import pytest

from admin.api.faults import pointer_to, shape_faults, unstorable
from admin.api.json_stream import Repeated
from admin.api.schemas import SendRequest, parse_timestamp


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2027-03-28T09:00:00+01:00", datetime(2027, 3, 28, 8, tzinfo=UTC)),
        ("2027-11-07T09:00:00-05:00", datetime(2027, 11, 7, 14, tzinfo=UTC)),
        ("2027-03-28T08:00:00Z", datetime(2027, 3, 28, 8, tzinfo=UTC)),
        ("2027-03-28t08:00:00z", datetime(2027, 3, 28, 8, tzinfo=UTC)),
        ("2027-03-28T08:00:00-00:00", datetime(2027, 3, 28, 8, tzinfo=UTC)),
        ("2027-03-28T08:00:00.25Z", datetime(2027, 3, 28, 8, 0, 0, 250_000, tzinfo=UTC)),
        ("2027-03-28T08:00:00.1234567891Z", datetime(2027, 3, 28, 8, 0, 0, 123_456, tzinfo=UTC)),
        ("9998-12-31T23:59:59-14:00", datetime(9999, 1, 1, 13, 59, 59, tzinfo=UTC)),
        (None, None),
    ],
)
def test_a_time_with_an_offset_is_read_as_utc(text: str | None, means: datetime | None) -> None:
    assert parse_timestamp(text) == means


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("2027-03-28T09:00:00", "no offset"),
        ("2027-03-28 09:00", "no offset"),
        ("2027-03-28", "not an RFC 3339"),
        ("2027-03-28T08:00:00-0000", "not an RFC 3339"),
        ("2027-03-28T24:00:00Z", "does not exist|not a date and time that exists"),
        ("2027-03-28T09:00:00+00:60", "not an RFC 3339"),
        ("2027-02-30T00:00:00Z", "not a date and time that exists"),
        ("2027-03-28T08:00:60Z", "not a date and time that exists"),
        ("2027-03-28T08:00:00+99:00", "not a date and time that exists"),
        ("9999-12-31T00:00:00Z", "between the years"),
        ("0001-01-01T00:00:00+14:00", "between the years"),
        ("tomorrow", "not an RFC 3339"),
        ("２０２７-03-28T08:00:00Z", "not an RFC 3339|exists"),
        (1_800_000_000, "must be text"),
        (True, "must be text"),
    ],
)
def test_a_time_that_could_be_misread_is_refused(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_timestamp(value)


def faults_of(body: object) -> dict[str, str]:
    return {fault.pointer: fault.detail for fault in shape_faults(SendRequest, body)}


def test_every_fault_of_the_shape_is_named_at_its_place() -> None:
    found = faults_of(
        {
            "nmae": "x",
            "urgent": "yes",
            "on_invalid": "ignore",
            "name": "x" * 201,
            "email": {"text": 1, "recipients": []},
            "sms": [],
        }
    )
    assert found == {
        "/nmae": "is not a field here; did you mean name?",
        "/urgent": "must be true or false",
        "/on_invalid": "must be 'reject' or 'skip'",
        "/name": "is longer than 200 characters",
        "/email/subject": "is required",
        "/email/text": "must be text",
        "/email/recipients": "is empty; give at least one",
        "/sms": "must be an object",
    }


def test_a_suggestion_comes_from_the_fields_of_the_same_object() -> None:
    found = faults_of({"email": {"subject": "s", "form": "x", "recipients": [{"to": "x", "parms": {}}]}})
    assert found["/email/form"] == "is not a field here; did you mean from?"
    assert found["/email/recipients/0/parms"] == "is not a field here; did you mean params?"


def test_pointers_are_escaped() -> None:
    assert pointer_to("a/b", 3, "c~d") == "/a~1b/3/c~0d"


def test_what_postgres_cannot_hold_is_found_in_keys_and_values_at_any_depth() -> None:
    repeated = Repeated({"x": 1})
    repeated.key = "x"
    found = {
        fault.pointer
        for fault in unstorable(
            {"a\0": 1, "b": ["ok", {"c": "\ud83d"}], "d": {"\ude00": ""}, "e": repeated, "f": "\uffff"}
        )
    }
    assert found == {"/a\0", "/b/1/c", "/d/\ude00", "/e/x"}
