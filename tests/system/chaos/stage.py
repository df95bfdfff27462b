"""Where a scenario plays: own stores, a provider that counts, the whole fleet with short settings, the API."""

import http.client
import json
import math
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from admin.local.tether import Tether
from shared.domain.states import Mode
from shared.ledger import tenants
from shared.ledger.db import Ledger
from tests.system.chaos.fleet import MEMBERS, Fleet
from tests.system.chaos.provider import LATENCY_MS, Counts, Provider, ches_process
from tests.system.chaos.stores import Stores, stores

#: What would take minutes otherwise, each far above what it must exceed: a lease its renewal, a heartbeat its beat
#: (5 s), staleness the longest call. The cap leaves 16 of 20 slots to bulk: 320 messages a second at 50 ms each.
SETTINGS: Mapping[str, str] = {
    "LEASE_MS": "6000",
    "LEASE_RENEW_MS": "1000",
    "DUE_WORK_INTERVAL_MS": "500",
    "CHAIN_BUDGET_MS": "3000",
    "RETRY_BASE_DELAY_MS": "1000",
    "CIRCUIT_RESET_MS": "2000",
    "WORKER_HEARTBEAT_TIMEOUT_MS": "10000",
    "DELIVERY_RECONCILE_INTERVAL_MS": "2000",
    "DELIVERY_RECONCILE_PENDING_STALE_MS": "1000",
    "DELIVERY_RECONCILE_STALE_MS": "12000",
    "CHES_TIMEOUT_MS": "3000",
    "CHES_MAX_CONCURRENT_REQUESTS": "20",
    "TWILIO_TIMEOUT_MS": "3000",
    "ACS_TIMEOUT_MS": "3000",
    "SMTP_CONNECT_TIMEOUT_MS": "1000",
    "SMTP_TIMEOUT_MS": "1000",
    "SMTP_FINAL_DOT_TIMEOUT_MS": "3000",
    "LOG_FORMAT": "text",
}
CAP = int(SETTINGS["CHES_MAX_CONCURRENT_REQUESTS"])
#: s; what the API may take for an answer while stores are away
_ANSWER_S = 60.0


@dataclass(frozen=True)
class Submitted:
    """A send that was answered with 202, and whom it is to reach."""

    id: UUID
    recipients: frozenset[str]


@dataclass
class Stage:
    """
    One fleet over one database. Scenarios follow each other on it; each looks at its own sends alone.

    `before` is what the provider had done when the scenario began. `patience_s` shortens every wait for the end.
    """

    stores: Stores
    provider: Provider
    fleet: Fleet
    ledger: Ledger
    key: str
    rng: random.Random
    before: Counts
    patience_s: float = math.inf
    sends: list[Submitted] = field(default_factory=list)
    number: int = 0

    def begin(self, seed: str) -> None:
        """Forget the scenario before."""
        self.provider.usually(latency_ms=LATENCY_MS)
        self.rng = random.Random(seed)
        self.sends.clear()
        self.fleet.deaths.clear()
        self.number += 1
        self.before = self.provider.counts()

    def submit(self, *counts: int) -> list[Submitted]:
        """Hand in a send to so many recipients for each count, who get nothing else."""
        made = []
        for count in counts:
            name = f"s{self.number}-{len(self.sends)}"
            recipients = [f"{name}-{n}@example.com" for n in range(count)]
            body = {
                "email": {
                    "subject": "Hello {{ n }}",
                    "text": "Dear number {{ n }}",
                    "recipients": [{"to": to, "params": {"n": n}} for n, to in enumerate(recipients)],
                }
            }
            status, answer = self.call("POST", "/sends", body)
            assert status == 202, (status, answer)
            made.append(Submitted(UUID(answer["id"]), frozenset(recipients)))
            self.sends.append(made[-1])
        return made

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the API; status and answer."""
        connection = http.client.HTTPConnection(urlsplit(self.fleet.address).netloc, timeout=_ANSWER_S)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/api/v1{path}", json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def accepted(self) -> int:
        """What the provider accepted since the scenario began."""
        return self.provider.counts().total - self.before.total

    def did(self, name: str) -> int:
        """How often the provider did something since the scenario began."""
        return self.provider.counts().number(name) - self.before.number(name)


@contextmanager
def stage(
    tether: Tether, *, seed: str, settings: Mapping[str, str] | None = None, provider: Provider | None = None
) -> Iterator[Stage]:
    """Start everything, the scripted CHES as provider unless another is given; `settings` on top of the short ones."""
    with ExitStack() as stack:
        servers = stack.enter_context(stores(tether))
        provider = provider or stack.enter_context(ches_process(seed))
        database_url = servers.make_database()
        ledger = Ledger(database_url, size=2, name="chaos", patience_s=2.0)
        ledger.open()
        stack.callback(ledger.close)
        with ledger.transaction() as connection:
            tenant = tenants.create_tenant(connection, name="chaos", email_from="news@example.com")
            _, key = tenants.create_key(connection, tenant_id=tenant, mode=Mode.LIVE, name="chaos")
        environment = {
            "DATABASE_URL": database_url,
            "REDIS_URL": servers.redis_url,
            **SETTINGS,
            **provider.settings,
            **(settings or {}),
        }
        folder = Path(tempfile.mkdtemp(prefix="tidings-chaos-"))
        stack.callback(shutil.rmtree, folder)
        fleet = Fleet(tether, folder, environment, ledger)
        stack.callback(fleet.end)
        for member in MEMBERS:
            fleet.start(member)
        fleet.wait_until_ready()
        yield Stage(servers, provider, fleet, ledger, key, random.Random(seed), provider.counts())
