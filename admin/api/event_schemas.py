"""The bodies of events and findings: what is validated and what is answered."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from admin.api.paging import Query
from admin.api.schemas import Closed
from shared.domain.digest_channels import KIND
from shared.domain.digests import (
    MAX_DETAILS_CHARS,
    MAX_KEY_CHARS,
    MAX_KIND_CHARS,
    MAX_SOURCE_CHARS,
    MAX_SUBJECT_CHARS,
)
from shared.domain.visible import visible

#: Events or findings of one request, and bytes of its body.
MAX_BULK, MAX_BULK_BYTES = 10_000, 16 * 1024 * 1024


def check_key(text: str) -> str:
    """
    Take a key as it is: keys are compared letter by letter.

    Raises: ValueError for what would look like another key to people.
    """
    if not text:
        raise ValueError("is empty")
    if text != text.strip():
        raise ValueError("begins or ends with a space; keys are compared letter by letter")
    if "\ufffd" in text:
        raise ValueError("contains U+FFFD, which stands for what was not UTF-8; percent-encode the UTF-8 of the key")
    return _one_line(text)


def _one_line(text: str) -> str:
    if visible(text) != text:
        raise ValueError("contains a control character; it is one line of plain text")
    return text


def _subject(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return _one_line(text)


def _kind(text: str) -> str:
    if not KIND.fullmatch(text):
        raise ValueError("has small letters, digits and . _ : / - only, and begins with a letter or digit")
    return text


def _source(text: str) -> str:
    return check_key(text) if text else text


def _details(value: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        chars = 0 if value is None else len(json.dumps(value, default=float, ensure_ascii=False, allow_nan=False))
    except (ValueError, OverflowError):
        raise ValueError("has a number that is out of range; give it as text") from None
    if chars > MAX_DETAILS_CHARS:
        raise ValueError(f"has more than {MAX_DETAILS_CHARS:,} characters as JSON")
    return value


KeyText = Annotated[str, Field(max_length=MAX_KEY_CHARS), AfterValidator(check_key)]
SubjectText = Annotated[str, Field(max_length=MAX_SUBJECT_CHARS), AfterValidator(_subject)]
KindText = Annotated[str, Field(max_length=MAX_KIND_CHARS), AfterValidator(_kind)]
SourceText = Annotated[str, Field(max_length=MAX_SOURCE_CHARS), AfterValidator(_source)]
Details = Annotated[dict[str, Any] | None, AfterValidator(_details)]
SeverityWord = Literal["info", "low", "medium", "high", "critical"]


class EventRequest(Closed):
    """Something that happened."""

    dedup_key: KeyText = Field(description="What makes it one thing: it is told once on each channel.")
    kind: KindText = Field(description="Its kind, such as `update-available`; channels choose by it.")
    subject: SubjectText = Field(description="One line for people.")
    severity: SeverityWord = "info"
    details: Details = Field(None, description="Passed on by webhooks, unless the message would become too large.")
    finding: KeyText | None = Field(None, description="Key of the finding that it belongs to.")


class EventsRequest(Closed):
    """Events, each with a dedup key of its own."""

    events: list[EventRequest] = Field(min_length=1, max_length=MAX_BULK)


class FindingRequest(Closed):
    """What a finding is now."""

    kind: KindText
    subject: SubjectText
    severity: SeverityWord = "info"
    active: bool = Field(default=True, description="Whether it is so. What is not is kept and not told.")
    source: SourceText = Field("", description="Who found it; a source can replace all its findings at once.")
    dedup_key: KeyText | None = Field(
        None,
        description="What of it is told once; default: its key. Another one, such as a newer version, is told anew.",
    )
    details: Details = None


class NamedFinding(FindingRequest):
    """A finding with its key."""

    key: KeyText


class FindingsRequest(Closed):
    """Findings, each with a key of its own."""

    findings: list[NamedFinding] = Field(min_length=1, max_length=MAX_BULK)


class SourceFinding(Closed):
    """A finding of a source; all that are handed in are active."""

    key: KeyText
    kind: KindText
    subject: SubjectText
    severity: SeverityWord = "info"
    dedup_key: KeyText | None = None
    details: Details = None


class SourceFindingsRequest(Closed):
    """All that a source finds to be so now; none is a set, too."""

    findings: list[SourceFinding] = Field(max_length=MAX_BULK)


class EventStored(BaseModel):
    """What became of an event."""

    dedup_key: str
    result: Literal["new", "raised", "known"] = Field(
        description="`raised`: it was known and is more severe now, so that more channels may want to hear of it."
    )


class EventsStored(BaseModel):
    """What became of each event, in the order they were given, and how many there were of each."""

    events: list[EventStored]
    new: int
    raised: int
    known: int


class FindingView(BaseModel):
    """A finding."""

    key: str
    source: str
    dedup_key: str
    kind: str
    subject: str
    severity: SeverityWord
    details: dict[str, Any] | None
    active: bool
    created_at: datetime
    changed_at: datetime = Field(description="When there was last something new about it.")
    inactive_at: datetime | None


class FindingsStored(BaseModel):
    """How many findings were given, were not so already, and are over because their source names them no more."""

    given: int
    changed: int
    ended: int


class FindingPage(BaseModel):
    """By key."""

    findings: list[FindingView]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class FindingQuery(Query):
    """Which findings to list."""

    cursor: str | None = Field(None, max_length=2_000, description="`next_cursor` of the page before.")
    source: str | None = None
    active: Literal["true", "false"] | None = None
