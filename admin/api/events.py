"""Events and findings: handed in by tenants, told on their digest channels by workers."""

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from admin.api.body import Model, read_model
from admin.api.event_schemas import (
    MAX_BULK_BYTES,
    EventRequest,
    EventsRequest,
    EventsStored,
    EventStored,
    FindingPage,
    FindingQuery,
    FindingRequest,
    FindingsRequest,
    FindingsStored,
    FindingView,
    SourceFindingsRequest,
    check_key,
)
from admin.api.faults import pointer_to
from admin.api.operations import operation
from admin.api.paging import decode_key_cursor, encode_key_cursor
from admin.auth import credential, tenant_id_of
from admin.errors import Fault, ProblemError, not_found
from admin.extensions import services
from shared.domain.digests import MAX_KEY_CHARS, MAX_SOURCE_CHARS, Severity
from shared.domain.states import Mode
from shared.ledger import events
from shared.ledger.events import Finding, NewEvent, NewFinding

_BODY = (400, 401, 403, 413, 415, 422, 503)


@operation(
    "POST", "/events", summary="Hand in an event", body=EventRequest, answer=EventStored, status=202, problems=_BODY
)
def post_event() -> BaseModel:
    """
    Tell the tenant's digest channels that something happened, with their next message.

    Handing in the same `dedup_key` again changes nothing, unless the event is more severe now: then channels that did
    not want to hear of it look at it again. Keys are compared letter by letter.
    """
    tenant_id = _live_tenant()
    event = read_model(EventRequest)
    with services().ledger.transaction() as connection:
        stored = events.store_events(connection, tenant_id, [_event(event)])
    return EventStored(dedup_key=event.dedup_key, result=stored[event.dedup_key])  # type: ignore[arg-type]  # one of them


@operation(
    "POST",
    "/events/bulk",
    summary="Hand in events",
    body=EventsRequest,
    answer=EventsStored,
    status=202,
    problems=_BODY,
)
def post_events() -> BaseModel:
    """Hand in up to 10,000 events at once; all are stored, or none."""
    tenant_id = _live_tenant()
    given = _read(
        EventsRequest, lambda body: _repeated("events", "dedup_key", [e.dedup_key for e in body.events])
    ).events
    with services().ledger.transaction() as connection:
        stored = events.store_events(connection, tenant_id, [_event(event) for event in given])
    results = list(stored.values())
    return EventsStored(
        events=[EventStored(dedup_key=e.dedup_key, result=stored[e.dedup_key]) for e in given],  # type: ignore[arg-type]
        new=results.count("new"),
        raised=results.count("raised"),
        known=results.count("known"),
    )


@operation(
    "PUT",
    "/findings/{key}",
    summary="Say what is so",
    body=FindingRequest,
    answer=FindingView,
    problems=_BODY,
    whole="key",
)
def put_finding(key: str) -> BaseModel:
    """
    Make a finding what it is now, active or not; it is made if there is none of this key.

    Each channel is told once of an active finding's `dedup_key`. Becoming inactive and active again is not told;
    becoming severe enough for a channel is, and so is another `dedup_key`.
    """
    tenant_id = _live_tenant()
    key = _key(key)
    given = read_model(FindingRequest)
    with services().ledger.transaction() as connection:
        events.put_findings(connection, tenant_id, [_finding(key, given)])
        return _view(_found(events.find_finding(connection, tenant_id, key)))


@operation(
    "PUT", "/findings", summary="Say what is so, at once", body=FindingsRequest, answer=FindingsStored, problems=_BODY
)
def put_findings() -> BaseModel:
    """Make up to 10,000 findings what they are now; others stay as they are."""
    tenant_id = _live_tenant()
    given = _read(FindingsRequest, lambda body: _repeated("findings", "key", [f.key for f in body.findings])).findings
    with services().ledger.transaction() as connection:
        changed = events.put_findings(connection, tenant_id, [_finding(one.key, one) for one in given])
    return FindingsStored(given=len(given), changed=changed, ended=0)


@operation(
    "PUT",
    "/sources/{source}/findings",
    summary="Replace a source's findings",
    body=SourceFindingsRequest,
    answer=FindingsStored,
    problems=_BODY,
    whole="source",
)
def replace_findings(source: str) -> BaseModel:
    """Say all that a source finds to be so now: what it does not name any more becomes inactive."""
    tenant_id = _live_tenant()
    source = _key(source, "source", MAX_SOURCE_CHARS)
    body = _read(SourceFindingsRequest, lambda body: _repeated("findings", "key", [f.key for f in body.findings]))
    new = [
        NewFinding(
            one.key,
            one.dedup_key or one.key,
            one.kind,
            one.subject,
            Severity(one.severity),
            source=source,
            details=one.details,
        )
        for one in body.findings
    ]
    with services().ledger.transaction() as connection:
        events.lock_findings(connection, tenant_id)
        changed = events.put_findings(connection, tenant_id, new)
        ended = events.end_others(connection, tenant_id, source=source, named=[one.key for one in new])
    return FindingsStored(given=len(new), changed=changed, ended=ended)


@operation(
    "GET", "/findings", summary="List findings", query=FindingQuery, answer=FindingPage, problems=(401, 403, 422, 503)
)
def list_findings(query: FindingQuery) -> BaseModel:
    """List the tenant's findings by key."""
    tenant_id = tenant_id_of(credential())
    after = decode_key_cursor(query.cursor) if query.cursor else ""
    active = None if query.active is None else query.active == "true"
    with services().ledger.transaction() as connection:
        found = events.list_findings(
            connection, tenant_id, after=after, limit=query.limit + 1, source=query.source, active=active
        )
    shown = found[: query.limit]
    return FindingPage(
        findings=[_view(one) for one in shown],
        next_cursor=encode_key_cursor(shown[-1].key) if len(found) > query.limit else None,
    )


@operation(
    "GET",
    "/findings/{key}",
    summary="Look at a finding",
    answer=FindingView,
    problems=(401, 403, 404, 422, 503),
    whole="key",
)
def get_finding(key: str) -> BaseModel:
    """Show a finding."""
    tenant_id = tenant_id_of(credential())
    key = _key(key)
    with services().ledger.transaction() as connection:
        return _view(_found(events.find_finding(connection, tenant_id, key)))


@operation(
    "DELETE",
    "/findings/{key}",
    summary="Take a finding back",
    answer=FindingView,
    problems=(401, 403, 404, 422, 503),
    whole="key",
)
def delete_finding(key: str) -> BaseModel:
    """Remove a finding; the answer shows it as it was. What was told of it stays told for as long as it is kept."""
    tenant_id = _live_tenant()
    key = _key(key)
    with services().ledger.transaction() as connection:
        return _view(_found(events.delete_finding(connection, tenant_id, key)))


def _live_tenant() -> int:
    """
    The tenant of a live key.

    Raises: ProblemError 403 for a test key: what channels are told goes to real endpoints.
    """
    caller = credential()
    tenant_id = tenant_id_of(caller)
    if caller.mode is Mode.TEST:
        raise ProblemError(
            403, "test-key", "Events and findings are told to real endpoints; hand them in with a live key."
        )
    return tenant_id


def _read(model: type[Model], also: Callable[[Model], list[Fault]]) -> Model:
    return read_model(model, max_bytes=MAX_BULK_BYTES, max_faults=services().settings.api_max_faults, also=also)


def _repeated(name: str, field: str, keys: Sequence[str]) -> list[Fault]:
    first: dict[str, int] = {}
    faults = []
    for index, key in enumerate(keys):
        if key in first:
            faults.append(Fault(pointer_to(name, index, field), f"is that of {pointer_to(name, first[key])} too"))
        first.setdefault(key, index)
    return faults


def _key(text: str, what: str = "key", most: int = MAX_KEY_CHARS) -> str:
    try:
        found = f"is longer than {most} characters" if len(text) > most else ""
        check_key(text)
    except ValueError as error:
        found = str(error)
    if found:
        raise ProblemError(422, "invalid-path", f"The {what} in the path {found}.")
    return text


def _event(given: EventRequest) -> NewEvent:
    return NewEvent(given.dedup_key, given.kind, given.subject, Severity(given.severity), given.details, given.finding)


def _finding(key: str, given: FindingRequest) -> NewFinding:
    return NewFinding(
        key,
        given.dedup_key or key,
        given.kind,
        given.subject,
        Severity(given.severity),
        active=given.active,
        source=given.source,
        details=given.details,
    )


def _found(finding: Finding | None) -> Finding:
    if finding is None:
        raise not_found("finding")
    return finding


def _view(finding: Finding) -> FindingView:
    return FindingView.model_validate({name: getattr(finding, name) for name in FindingView.model_fields})
