"""
What a digest endpoint's answer means.

An answer is the endpoint's own word that it did not take a message, 500 included, other than a gateway's that gave up
waiting for it (502, 504 and their kin): that one, like no answer at all, may hide a message that was taken.

Sources: Standard Webhooks 1.0 (2xx is taken, 410 ends the subscription, redirects are failures); Slack, "error handling
for incoming webhooks"; ntfy and Gotify, publishing and message API.
"""

from http import HTTPStatus

from shared.domain.digests import ChannelType
from shared.domain.outcome import Accepted, Configuration, Outcome, Permanent, Scope, Throttled, Transient
from workers.providers import classify
from workers.providers.http import HttpResult

_REFUSED = frozenset({401, 403, 404, 405, 410})
_SLOW_DOWN = frozenset({425, 429})
_GATEWAY_GAVE_UP = frozenset({502, 504, *range(520, 525)})
#: Tries that may be repeated within a call under one webhook id, besides time-outs and every other 5xx.
_REQUEST_TIMEOUT = 408


def outcome_of(type_: ChannelType, result: HttpResult) -> Outcome:
    """Say what one exchange with an endpoint came to."""
    if result.status == 0:
        return classify.transport_failure(result)
    status = result.status
    code = classify.as_code(type_.value, status)
    if result.is_success:
        return Accepted(None)
    detail = classify.text_of(result)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Configuration(Scope.PROVIDER, code, "it redirects; redirects are not followed: give the final address")
    if status in _REFUSED:
        return Configuration(Scope.PROVIDER, code, detail)
    if status in _SLOW_DOWN:
        return Throttled(code, detail, classify.retry_after_s(result))
    if status in _GATEWAY_GAVE_UP:
        return classify.ambiguous(result, code=code, detail=detail)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == _REQUEST_TIMEOUT:
        return Transient(Scope.PROVIDER, code, detail, retry_after_s=classify.retry_after_s(result))
    return Permanent(Scope.MESSAGE, code, detail)


def refused_address() -> Outcome:
    """The host resolves to an address that digests may not go to."""
    return Configuration(
        Scope.PROVIDER,
        "address_refused",
        "its host has no public address; DIGEST_PRIVATE_HOSTS names the hosts that may have another",
    )


def shown(result: HttpResult) -> str:
    """An answer as a person is shown it after a test: the status line's number and the beginning of the body."""
    if result.status == 0:
        return f"no answer: {result.error_text or 'the connection ended'}"
    body = classify.text_of(result).strip()
    return f"HTTP {result.status}{f': {body}' if body else ''}"
