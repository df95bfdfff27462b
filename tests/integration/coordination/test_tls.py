"""A Redis behind TLS (`rediss://`): for the shared state, and for the queues."""

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.jobs import JobName, Jobs, make_broker
from shared.settings import load
from tests.support.scripted_http import CERTIFICATE
from tests.support.tls_front import tls_front


@pytest.fixture
def tls_address(redis_url: str) -> Iterator[str]:
    parts = urlsplit(redis_url)
    with tls_front(parts.port or 6379) as port:
        userinfo = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        yield f"rediss://{userinfo}127.0.0.1:{port}{parts.path}"


def test_state_and_queues_go_through_tls_where_the_certificate_is_trusted(tls_address: str) -> None:
    url = f"{tls_address}?ssl_ca_certs={CERTIFICATE}"
    url = load(database_url="postgresql://nobody@127.0.0.1/none", redis_url=url).redis_url.get_secret_value()
    with closing(RedisLink(url, timeout_s=10)) as link:
        assert link.health().version
    broker = make_broker(url, namespace=f"tls-{uuid4().hex}", heartbeat_timeout_ms=60_000)
    Jobs(broker).periodic(JobName.DUE_WORK, slot=1)
    message = next(broker.consume("ops", prefetch=1, timeout=5_000))
    assert message is not None
    assert message.actor_name == JobName.DUE_WORK.value
    broker.client.connection_pool.disconnect()


def test_a_certificate_that_nobody_vouches_for_is_refused(tls_address: str) -> None:
    with closing(RedisLink(tls_address, timeout_s=10)) as link, pytest.raises(RedisUnavailable):
        link.health()
