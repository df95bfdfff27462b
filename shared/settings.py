"""
Every knob of the product: its unit, its range, its reason. Read once per process entry and passed down.

`load()` is the only reader of the environment. All faults are reported together, secrets masked, in one
`SettingsError` whose text names each variable and its remedy. docs/configuration.md is generated from here.
"""

import base64
import binascii
import ipaddress
import re
import ssl
from collections.abc import Iterator
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.domain.address import AddressError, parse_sender

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.ASCII | re.IGNORECASE)
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})+", re.ASCII | re.IGNORECASE)
#: Host names or addresses with spaces between, or nothing.
_HOST_LIST = r"^[A-Za-z0-9._:\[\]-]*( [A-Za-z0-9._:\[\]-]+)*$"
#: E.164, a short code, or a sender id: up to 11 letters and digits with a letter in it (3GPP TS 23.040 §9.1.2.5).
_SMS_SENDER = re.compile(r"\+[1-9]\d{6,14}|\d{3,8}|(?=.*[A-Za-z])[A-Za-z0-9 _&+-]{1,11}", re.ASCII)
#: Stand in for what is required and at fault, so that the other settings can be held against each other.
_STAND_INS = {"database_url": "postgresql://stand-in", "redis_url": "redis://stand-in"}

#: Milliseconds; no lease of a worker process is longer, so that one which ends later was given by a clock put back since.
LEASE_MAX_MS = 300_000

_UNKNOWN_PARAMETER = re.compile(r'invalid URI query parameter: "[^"]*"')


class SettingsError(Exception):
    """The environment does not make a valid configuration; the text lists every fault."""


class Settings(BaseSettings):
    """The configuration of one process; frozen. Field name in capitals = environment variable."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True, case_sensitive=False)

    # --- stores -------------------------------------------------------------------------------------------
    database_url: SecretStr = Field(
        description="Postgres (15 or newer), the ledger of what is owed. `postgres://` and `postgresql://` both work.",
    )
    redis_url: SecretStr = Field(
        description="Redis (7 or newer) or Valkey, transport and shared state. `redis://`, or `rediss://`, whose certificate is"
        " verified (`?ssl_ca_certs=/path/ca.pem` names your own authority)."
    )
    redis_namespace: str = Field(
        "tidings",
        pattern=r"^[a-z0-9_-]{1,40}$",
        description="Prefix of every Redis key, so that two installations can share a server.",
    )
    db_pool_size: int = Field(
        8,
        ge=1,
        le=64,
        description="Most connections per process to Postgres. None is held across a provider call, so 8 serve many threads.",
    )

    # --- this installation --------------------------------------------------------------------------------
    environment: str = Field(
        "development",
        pattern=r"^[A-Za-z0-9 _-]{1,30}$",
        description="Shown beside the product name on every page. In `production` nobody signs in by a link unless ADMIN_LINKS=on.",
    )
    public_url: str | None = Field(
        None,
        description="How the outside reaches the web process (https://…), for provider callbacks and links. No callbacks without it.",
    )
    secret_key: SecretStr | None = Field(
        None,
        description="Signs who is signed in to the pages, and sign-in links; at least 32 characters, the same for every process. Without it nobody can sign in.",
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="`auto`: readable in a terminal, JSON lines elsewhere."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe level that is written."
    )

    # --- acceptance ---------------------------------------------------------------------------------------
    api_max_recipients: int = Field(
        1_000_000, ge=1, le=10_000_000, description="Most recipients of one submission over all its channels."
    )
    api_max_body_bytes: int = Field(
        256 * 1024 * 1024, ge=1024, le=4 * 1024**3, description="Largest body of a submission, in bytes."
    )
    api_max_faults: int = Field(
        1_000, ge=1, le=100_000, description="Most faults listed in one answer; the rest are counted."
    )
    template_max_bytes: int = Field(
        1024 * 1024,
        ge=100,
        le=20 * 1024 * 1024,
        description="Largest subject, text or html template, in bytes.",
    )
    idempotency_key_ttl_hours: int = Field(
        24, ge=1, le=24 * 30, description="How long an Idempotency-Key is remembered, in hours."
    )
    batch_size: int = Field(
        25,
        ge=1,
        le=1000,
        description="Deliveries of a batch: the unit of lease and progress, fixed at acceptance.",
    )
    single_lane_max_recipients: int = Field(
        25,
        ge=0,
        le=1000,
        description="Sends up to this many recipients take the single lane, which bulk never holds up.",
    )

    # --- sending ------------------------------------------------------------------------------------------
    window_max: int = Field(
        100,
        ge=1,
        le=500,
        description="Most calls of one window (one claim); memory and unknown outcomes after a crash are bounded by it.",
    )
    chains_per_send: int = Field(4, ge=1, le=64, description="Chains that may work on one bulk send at the same time.")
    chain_budget_ms: int = Field(
        20_000,
        ge=100,
        le=300_000,
        description="How long a chain works before it hands its successor to the queue, so that tenants take turns; milliseconds.",
    )
    lease_ms: int = Field(
        15_000,
        ge=2_000,
        le=LEASE_MAX_MS,
        description="A worker process that has not renewed for this long holds nothing any more; milliseconds.",
    )
    lease_renew_ms: int = Field(
        5_000, ge=500, le=60_000, description="How often a worker process renews its lease; milliseconds."
    )
    due_work_interval_ms: int = Field(
        2_000, ge=200, le=60_000, description="How often due work is looked for in Postgres; milliseconds."
    )

    # --- retries ------------------------------------------------------------------------------------------
    retry_base_delay_ms: int = Field(
        300_000,
        ge=1,
        le=86_400_000,
        description="First backoff; doubles with each failure: 5, 10, 20, 40 min; milliseconds.",
    )
    max_delivery_attempts: int = Field(
        5, ge=1, le=20, description="The attempt that fails last: then the delivery is dead-lettered."
    )
    retry_jitter_percent: int = Field(
        10, ge=0, le=100, description="Random part added on top of a backoff, never below it; percent."
    )
    email_retry_base_delay_ms: int | None = Field(
        None, ge=1, le=86_400_000, description="RETRY_BASE_DELAY_MS for e-mail alone."
    )
    email_max_delivery_attempts: int | None = Field(
        None, ge=1, le=20, description="MAX_DELIVERY_ATTEMPTS for e-mail alone."
    )
    sms_retry_base_delay_ms: int | None = Field(
        None, ge=1, le=86_400_000, description="RETRY_BASE_DELAY_MS for SMS alone."
    )
    sms_max_delivery_attempts: int | None = Field(None, ge=1, le=20, description="MAX_DELIVERY_ATTEMPTS for SMS alone.")
    max_outage_wait_hours: int = Field(
        72,
        ge=1,
        le=24 * 30,
        description="How long a delivery waits for a provider that takes nothing before it is given up; hours.",
    )
    retry_after_min_ms: int = Field(
        1_000, ge=0, le=60_000, description="Shortest Retry-After that is believed; milliseconds."
    )
    retry_after_max_ms: int = Field(
        3_600_000, ge=1_000, le=86_400_000, description="Longest Retry-After that is believed; milliseconds."
    )
    retry_after_default_ms: int = Field(
        30_000,
        ge=0,
        le=3_600_000,
        description="Wait after a throttling answer without Retry-After; milliseconds.",
    )
    poison_guard_count: int = Field(
        5,
        ge=0,
        le=1000,
        description="A send is paused after this many equal message faults in it; 0 switches it off.",
    )

    # --- circuit and cap ----------------------------------------------------------------------------------
    circuit_failures: int = Field(
        5, ge=1, le=1000, description="Failures inside CIRCUIT_WINDOW_MS that open a provider's circuit."
    )
    circuit_window_ms: int = Field(
        10_000, ge=100, le=600_000, description="Window of the circuit's count; milliseconds."
    )
    circuit_reset_ms: int = Field(
        30_000,
        ge=100,
        le=3_600_000,
        description="An open circuit lets one probe through after this long; milliseconds.",
    )
    configuration_recheck_ms: int = Field(
        300_000,
        ge=1_000,
        le=86_400_000,
        description="A provider isolated by a configuration error is looked at again after this long; milliseconds.",
    )
    single_lane_reserved_percent: int = Field(
        20, ge=0, le=90, description="Share of a provider's cap kept for single sends; percent, rounded up."
    )

    # --- providers ----------------------------------------------------------------------------------------
    email_provider: Literal["none", "sandbox", "smtp", "ches"] = Field("none", description="Who takes live e-mail.")
    sms_provider: Literal["none", "sandbox", "twilio", "acs"] = Field("none", description="Who takes live SMS.")
    email_from: str | None = Field(
        None,
        description="Sender of e-mails whose send names none: `name@example.com` or `Name <name@example.com>`.",
    )
    message_id_domain: str | None = Field(None, description="Domain of Message-ID. Default: the sender's domain.")

    ches_base_url: str | None = Field(None, description="CHES, up to and with the version: https://…/api/v1.")
    ches_token_url: str | None = Field(None, description="OAuth2 token endpoint of CHES.")
    ches_client_id: str | None = Field(
        None, description="OAuth2 client of CHES; must be the same for sending and looking up."
    )
    ches_client_secret: SecretStr | None = Field(None, description="Secret of CHES_CLIENT_ID.")
    ches_timeout_ms: int = Field(120_000, ge=100, le=600_000, description="Total time of one CHES call; milliseconds.")
    ches_connect_timeout_ms: int = Field(5_000, ge=50, le=60_000, description="Time to connect to CHES; milliseconds.")
    ches_max_concurrent_requests: int = Field(
        5,
        ge=0,
        le=10_000,
        description="Calls in flight to CHES over all processes; it takes about one mail a second however many arrive. 0: no cap.",
    )

    smtp_host: str | None = Field(None, description="Relay's host name.")
    smtp_port: int = Field(587, ge=1, le=65_535, description="Relay's port.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="`starttls`: required, never falls back to clear text; `tls`: from the first byte; `none`: plain, for loopback and private nets.",
    )
    smtp_username: str | None = Field(None, description="AUTH user; none: no AUTH.")
    smtp_password: SecretStr | None = Field(None, description="Password of SMTP_USERNAME.")
    smtp_ca_file: str | None = Field(
        None,
        description="PEM file of the authority that signed the relay's certificate, where it is not a public one.",
    )
    smtp_connect_timeout_ms: int = Field(
        10_000, ge=50, le=300_000, description="Time to connect and be greeted; milliseconds."
    )
    smtp_timeout_ms: int = Field(30_000, ge=100, le=600_000, description="Time of one SMTP command; milliseconds.")
    smtp_final_dot_timeout_ms: int = Field(
        300_000,
        ge=100,
        le=900_000,
        description="Time to wait for the answer to the final dot (RFC 5321 §4.5.3.2.6 asks for patience); milliseconds.",
    )
    smtp_max_concurrent_requests: int = Field(
        20, ge=0, le=10_000, description="Connections in use to the relay over all processes; 0: no cap."
    )
    smtp_connections_per_process: int = Field(
        20, ge=1, le=200, description="Connections one worker process keeps to the relay."
    )

    twilio_base_url: str = Field("https://api.twilio.com", description="Twilio's API host.")
    twilio_account_sid: str | None = Field(None, description="Twilio account (AC…).")
    twilio_auth_token: SecretStr | None = Field(
        None, description="Auth token of the account: calls, and the signature of callbacks."
    )
    twilio_from: str | None = Field(None, description="Sending number in E.164, or a sender id.")
    twilio_messaging_service_sid: str | None = Field(
        None, description="Messaging service (MG…) instead of TWILIO_FROM."
    )
    twilio_timeout_ms: int = Field(
        15_000, ge=100, le=600_000, description="Total time of one Twilio call; milliseconds."
    )
    twilio_max_concurrent_requests: int = Field(
        50, ge=0, le=10_000, description="Calls in flight to Twilio over all processes; 0: no cap."
    )

    acs_endpoint: str | None = Field(
        None, description="Azure Communication Services resource, https://….communication.azure.com."
    )
    acs_access_key: SecretStr | None = Field(None, description="Access key of the resource (base64).")
    acs_from: str | None = Field(None, description="Sending number in E.164, short code or sender id.")
    acs_webhook_secret: SecretStr | None = Field(
        None,
        min_length=16,
        description="Secret that Event Grid sends along with delivery reports (at least 16 characters). No reports without it.",
    )
    acs_timeout_ms: int = Field(15_000, ge=100, le=600_000, description="Total time of one ACS call; milliseconds.")
    acs_max_concurrent_requests: int = Field(
        20, ge=0, le=10_000, description="Calls in flight to ACS over all processes; 0: no cap."
    )

    sandbox_latency_ms: int = Field(
        0,
        ge=0,
        le=60_000,
        description="How long the sandbox takes for a call, for trying and load tests; milliseconds.",
    )
    sandbox_keep_messages: int = Field(
        10_000, ge=0, le=1_000_000, description="Most messages the sandbox inbox keeps; the oldest go first."
    )
    sandbox_keep_hours: int = Field(
        72, ge=1, le=24 * 365, description="Age at which the sandbox inbox forgets a message; hours."
    )
    sandbox_max_concurrent_requests: int = Field(
        0, ge=0, le=10_000, description="Cap of the sandbox over all processes, for trying the cap; 0: none."
    )

    # --- processes ----------------------------------------------------------------------------------------
    fleet: str = Field(
        "web=1 worker_ingest=1 worker_send=1 worker_bulk=1 worker_ops=1 clock=1",
        pattern=r"^[a-z_]+=[0-9]{1,4}( [a-z_]+=[0-9]{1,4})*$",
        description="How many of each process of the Procfile run (dynos), for the start-up check that Postgres has connections for all, and for each process's share of a cap while Redis is away.",
    )
    web_workers: int = Field(1, ge=1, le=64, description="gunicorn's worker processes in each `web`.")
    queue_shutdown_drain_ms: int = Field(
        25_000,
        ge=1_000,
        le=3_600_000,
        description="On SIGTERM a worker finishes and gives back within this time; below PLATFORM_GRACE_MS; milliseconds.",
    )
    platform_grace_ms: int = Field(
        30_000,
        ge=2_000,
        le=3_600_000,
        description="The platform kills this long after SIGTERM (Heroku: 30 s); milliseconds.",
    )
    queue_max_stalled_count: int = Field(
        3,
        ge=1,
        le=100,
        description="A message redelivered this often without finishing is set aside; the ledger keeps its work.",
    )
    queue_metrics_max_data_points: int = Field(
        1_440, ge=10, le=100_000, description="Minutes of per-queue figures kept in Redis."
    )
    worker_heartbeat_timeout_ms: int = Field(
        20_000,
        ge=10_000,
        le=600_000,
        description="Redis messages of a worker silent for this long go to another, twice its beat of 5 s at least;"
        " milliseconds.",
    )

    # --- reconciler ---------------------------------------------------------------------------------------
    delivery_reconcile_interval_ms: int = Field(
        60_000, ge=1_000, le=3_600_000, description="Time between two reconciler passes; milliseconds."
    )
    delivery_reconcile_stale_ms: int = Field(
        600_000,
        ge=10_000,
        le=86_400_000,
        description="Work held without progress for this long is stuck; milliseconds.",
    )
    delivery_reconcile_max_attempts: int = Field(
        5,
        ge=1,
        le=100,
        description="After this many recoveries without progress the rest of a batch is failed.",
    )
    delivery_reconcile_pending_stale_ms: int = Field(
        30_000,
        ge=1_000,
        le=86_400_000,
        description="An accepted send nobody picked up is found after this long; milliseconds.",
    )

    # --- pages --------------------------------------------------------------------------------------------
    monitoring_max_streams: int = Field(
        120,
        ge=0,
        le=1000,
        description="Open pages of one web process that are told of changes at once; others look every 15 s. Each keeps one of gunicorn's threads, so leave some.",
    )
    monitoring_stream_ping_ms: int = Field(
        15_000,
        ge=100,
        le=25_000,
        description="Silence, in milliseconds, after which an open page's stream says that it is there: half of what a proxy in front cuts silent connections after, at most. Who left is noticed by it, too.",
    )

    # --- digests ------------------------------------------------------------------------------------------
    digest_interval_ms: int = Field(
        300_000,
        ge=1_000,
        le=86_400_000,
        description="Time between two runs that tell each digest channel what is due; milliseconds.",
    )
    digest_timeout_ms: int = Field(
        20_000,
        ge=500,
        le=120_000,
        description="Total time of one message to a digest channel, repeats within the call included; milliseconds.",
    )
    digest_plain_http_hosts: str = Field(
        "",
        pattern=_HOST_LIST,
        description="Host names that digest channels may reach without TLS (http://), with spaces between. Of all others https:// is required.",
    )
    digest_private_hosts: str = Field(
        "",
        pattern=_HOST_LIST,
        description="Host names of digest channels that may resolve to private, loopback, link-local or metadata addresses, with spaces between. Any other is refused at the address it resolves to.",
    )
    digest_ca_file: str | None = Field(
        None,
        description="PEM file of the authority that signed the certificates of digest channels, in place of the public ones.",
    )

    # --- retention ----------------------------------------------------------------------------------------
    retention_days: int = Field(
        90,
        ge=1,
        le=3_650,
        description="Days for which the deliveries, attempts and receipts of a finished send are kept, and the set of an operation after its end; totals and results stay.",
    )
    notification_retention_days: int = Field(
        90,
        ge=1,
        le=3_650,
        description="Days for which events, findings that are over, and what became of notifications are kept, counted from when each became final. A channel may have its own.",
    )

    # --- monitoring ---------------------------------------------------------------------------------------
    monitoring_nothing_moving_age_ms: int = Field(
        300_000,
        ge=10_000,
        le=86_400_000,
        description="Due work that may go and is older than this, while nothing goes, is an alarm; milliseconds.",
    )
    monitoring_nothing_sent_ms: int = Field(
        180_000,
        ge=10_000,
        le=86_400_000,
        description="A channel of which no provider took anything for this long counts as not moving; milliseconds.",
    )
    monitoring_failure_percent: int = Field(
        3, ge=1, le=100, description="Share of failures in 15 minutes above which a channel has a warning; percent."
    )
    monitoring_failure_critical_percent: int = Field(
        10, ge=1, le=100, description="Share of failures in 15 minutes above which that is critical; percent."
    )
    monitoring_failure_attempts_min: int = Field(
        50, ge=1, le=1_000_000, description="Fewer outcomes in 15 minutes say nothing about the share of failures."
    )
    monitoring_circuit_open_ms: int = Field(
        600_000, ge=1_000, le=86_400_000, description="A circuit open for longer is an alarm; milliseconds."
    )
    monitoring_provider_held_ms: int = Field(
        3_600_000,
        ge=1_000,
        le=604_800_000,
        description="An operator's hold older than this is told to Prometheus, in case it was forgotten; milliseconds.",
    )
    monitoring_reconciler_late_intervals: int = Field(
        3, ge=2, le=100, description="A last pass older than so many DELIVERY_RECONCILE_INTERVAL_MS is late."
    )
    monitoring_clock_late_ms: int = Field(
        60_000, ge=5_000, le=86_400_000, description="A clock without a tick for this long is late; milliseconds."
    )
    monitoring_dead_letters_growing: int = Field(
        20, ge=1, le=1_000_000, description="So many new dead letters in 15 minutes are a warning."
    )
    monitoring_redis_memory_percent: int = Field(
        80, ge=1, le=100, description="Share of Redis's memory limit in use above which there is a warning; percent."
    )
    monitoring_snapshot_stale_ms: int = Field(
        60_000,
        ge=10_000,
        le=86_400_000,
        description="Figures of the pages that cannot be refreshed for this long are a warning; milliseconds.",
    )
    monitoring_worker_late_ms: int = Field(
        15_000,
        ge=10_000,
        le=600_000,
        description="A worker silent for this long is late, and gone after four times as long; milliseconds.",
    )
    monitoring_worker_idle_ms: int = Field(
        120_000,
        ge=10_000,
        le=86_400_000,
        description="A worker that takes nothing for this long while messages wait for it is not consuming; milliseconds.",
    )
    monitoring_version_skew_ms: int = Field(
        900_000,
        ge=10_000,
        le=604_800_000,
        description="Workers of two versions side by side for longer than a roll-out takes; milliseconds.",
    )
    monitoring_clock_skew_ms: int = Field(
        30_000,
        ge=1_000,
        le=3_600_000,
        description="Difference between the clocks of web, Postgres and Redis that is a warning; milliseconds.",
    )
    monitoring_queue_still_ms: int = Field(
        300_000,
        ge=60_000,
        le=86_400_000,
        description="A queue whose workers finish nothing for this long while messages wait is not moving; milliseconds.",
    )
    monitoring_arriving_faster_minutes: int = Field(
        10,
        ge=3,
        le=1_440,
        description="Minutes in a row in which a queue must grow before that is a warning: a large send alone is none.",
    )
    metrics_token: SecretStr | None = Field(
        None,
        description="Prometheus sends it as a bearer token to /metrics, at least 16 characters. Without it anybody who reaches the web process may read the metrics.",
    )

    # --- sign-in to the pages -----------------------------------------------------------------------------
    oidc_issuer: str | None = Field(
        None,
        description="OpenID Connect provider for single sign-on: what stands before `/.well-known/openid-configuration`. Needs the other OIDC_ settings, PUBLIC_URL and SECRET_KEY.",
    )
    oidc_client_id: str | None = Field(None, description="Client that the provider knows this installation as.")
    oidc_client_secret: SecretStr | None = Field(None, description="Secret of OIDC_CLIENT_ID.")
    oidc_role_claim: str | None = Field(
        None,
        description="Where a person's roles stand among the claims of the ID token or of userinfo: a name, or a path with dots as `realm_access.roles`.",
    )
    oidc_scopes: str = Field(
        "openid profile email",
        pattern=r"^[\x21-\x7e]+( [\x21-\x7e]+)*$",
        description="Scopes that are asked for; some providers give a refresh token only for `offline_access`.",
    )
    oidc_recheck_ms: int = Field(
        300_000,
        ge=10_000,
        le=3_600_000,
        description="How often the provider is asked whether a signed-in person still has the role; milliseconds.",
    )
    admin_role: str = Field(
        "NOTIFY_ADMIN", min_length=1, description="Role that may see and do everything; compared letter by letter."
    )
    admin_read_role: str | None = Field(
        None, min_length=1, description="Role that may see everything and do nothing. None: there is no such role."
    )
    admin_links: Literal["auto", "on", "off"] = Field(
        "auto",
        description="One-time sign-in links of `tidings admin link`. `auto`: where there is no single sign-on and ENVIRONMENT is not production; `on`: always, as a way in while the provider is away.",
    )

    # --- load test ----------------------------------------------------------------------------------------
    loadtest_mode: bool = Field(
        False,
        description="Opens POST /api/v1/loadtest/bind, which binds a credential to a tenant. Never in production.",
    )

    @field_validator("database_url")
    @classmethod
    def _database_scheme(cls, value: SecretStr) -> SecretStr:
        scheme = urlsplit(value.get_secret_value()).scheme
        if scheme not in {"postgres", "postgresql"}:
            raise ValueError(f"needs postgres:// or postgresql://, not {scheme or 'no scheme'}://")
        try:
            conninfo_to_dict(urlunsplit(urlsplit(value.get_secret_value())._replace(scheme="postgresql")))
        except ProgrammingError as error:
            named = _UNKNOWN_PARAMETER.search(str(error))  # its other texts quote what may be the password
            what = f": {named[0]}" if named else ""
            raise ValueError(f"is not an address that Postgres understands{what}") from None
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, value: SecretStr) -> SecretStr:
        scheme = urlsplit(value.get_secret_value()).scheme
        if scheme not in {"redis", "rediss", "unix"}:
            raise ValueError(f"needs redis://, rediss:// or unix://, not {scheme or 'no scheme'}://")
        return value

    @field_validator("public_url", "oidc_issuer", "ches_base_url", "ches_token_url", "twilio_base_url", "acs_endpoint")
    @classmethod
    def _http_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise ValueError("needs http(s)://host[/path], without user, password or query")
        return value.rstrip("/")

    @field_validator("secret_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 32:  # noqa: PLR2004
            raise ValueError(
                "needs at least 32 characters; make one with: python3 -c 'import secrets; print(secrets.token_hex(32))'"
            )
        return value

    @field_validator("metrics_token")
    @classmethod
    def _hard_to_guess(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 16:  # noqa: PLR2004
            raise ValueError(
                "needs at least 16 characters; make one with: python3 -c 'import secrets; print(secrets.token_hex(16))'"
            )
        return value

    @field_validator("email_from")
    @classmethod
    def _sender(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                parse_sender(value)
            except AddressError as error:
                raise ValueError(f"{error}; write it as name@example.com or Name <name@example.com>") from None
        return value

    @field_validator("smtp_host")
    @classmethod
    def _host(cls, value: str | None) -> str | None:
        if value is not None and not _HOST.fullmatch(value) and not _is_ip_address(value):
            raise ValueError("needs a host name alone, as smtp.example.com: no scheme, and the port in SMTP_PORT")
        return value

    @field_validator("message_id_domain")
    @classmethod
    def _domain(cls, value: str | None) -> str | None:
        if value is not None and not _DOMAIN.fullmatch(value):
            raise ValueError("needs a domain, as mail.example.com")
        return value

    @field_validator("smtp_ca_file", "digest_ca_file")
    @classmethod
    def _certificates(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                ssl.create_default_context(cafile=value)
            except ssl.SSLError:
                raise ValueError("holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)") from None
            except OSError as error:
                raise ValueError(f"cannot be read: {error.strerror}") from None
        return value

    @field_validator("acs_access_key")
    @classmethod
    def _base64(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                base64.b64decode(value.get_secret_value(), validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("needs base64: copy the whole access key, with any = at its end") from None
        return value

    @field_validator("twilio_from", "acs_from")
    @classmethod
    def _sms_sender(cls, value: str | None) -> str | None:
        if value is not None and not _SMS_SENDER.fullmatch(value):
            raise ValueError(
                "needs a number in E.164 (+16045550100), a short code, or a sender id of up to 11 letters and digits"
            )
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults = list(_faults_between(self))
        if faults:
            raise ValueError("\n".join(faults))
        return self


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _faults_between(settings: Settings) -> Iterator[str]:
    """What is wrong with settings that are each fine; the text names all of them."""
    if settings.lease_ms < 2 * settings.lease_renew_ms:
        yield "LEASE_MS must be at least twice LEASE_RENEW_MS, or one late renewal loses the lease"
    if settings.queue_shutdown_drain_ms >= settings.platform_grace_ms:
        yield (
            "QUEUE_SHUTDOWN_DRAIN_MS must be below PLATFORM_GRACE_MS, or the platform kills a worker before it has"
            " given back"
        )
    calls = {
        "CHES_TIMEOUT_MS": settings.ches_timeout_ms,
        "SMTP_CONNECT_TIMEOUT_MS + 5 x SMTP_TIMEOUT_MS + SMTP_FINAL_DOT_TIMEOUT_MS": settings.smtp_connect_timeout_ms
        + 5 * settings.smtp_timeout_ms
        + settings.smtp_final_dot_timeout_ms,
        "TWILIO_TIMEOUT_MS": settings.twilio_timeout_ms,
        "ACS_TIMEOUT_MS": settings.acs_timeout_ms,
    }
    longest = max(calls, key=calls.__getitem__)
    if settings.delivery_reconcile_stale_ms <= calls[longest]:
        yield (
            f"DELIVERY_RECONCILE_STALE_MS must be above the longest a provider call may take ({calls[longest]} ms:"
            f" {longest}), or live calls look stuck"
        )
    if settings.retry_after_min_ms > settings.retry_after_max_ms:
        yield "RETRY_AFTER_MIN_MS must not be above RETRY_AFTER_MAX_MS"
    if settings.monitoring_failure_critical_percent < settings.monitoring_failure_percent:
        yield "MONITORING_FAILURE_CRITICAL_PERCENT must not be below MONITORING_FAILURE_PERCENT"
    yield from _faults_of_sign_in(settings)


def _faults_of_sign_in(settings: Settings) -> Iterator[str]:
    """Half a set-up is none: pages that seem guarded and are not, or that nobody can open."""
    own = ("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_role_claim")
    begun = [name.upper() for name in own if getattr(settings, name) is not None]
    if begun:
        missing = [name.upper() for name in (*own, "public_url", "secret_key") if getattr(settings, name) is None]
        if missing:
            yield f"single sign-on is half set up: {', '.join(begun)} given, {', '.join(missing)} missing"
        for name in ("oidc_issuer", "public_url"):
            address = getattr(settings, name)
            if address is not None and not is_private_to_browser(address):
                yield f"{name.upper()} must be https:// for single sign-on, except on this machine itself"
        if "openid" not in settings.oidc_scopes.split():
            yield "OIDC_SCOPES must contain openid"
    if settings.admin_read_role == settings.admin_role:
        yield "ADMIN_READ_ROLE must not be the same as ADMIN_ROLE, which may do everything"


def is_private_to_browser(url: str) -> bool:
    """Whether nobody on the way can read what a browser exchanges with this address: https, or this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_loopback = host == "localhost" or (_is_ip_address(host) and ipaddress.ip_address(host).is_loopback)
    return parts.scheme == "https" or is_loopback


def load(**overrides: object) -> Settings:
    """
    Read the environment once.

    Raises: SettingsError naming every variable at fault; values of secrets are not in its text.
    """
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        faults = _read(error)
        lines = [f"  {place or 'together'}: {text}" for place, text in faults]
        lines += [f"  together: {text}" for text in _find_faults_between(overrides, {place for place, _ in faults})]
        raise SettingsError("The settings are not valid:\n" + "\n".join(lines)) from None


def _read(error: ValidationError) -> list[tuple[str, str]]:
    """Give the variables at fault, each with what is wrong; the place is empty for a fault between settings."""
    found = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        place = ".".join(str(part) for part in fault["loc"]).upper()
        text = "is not set" if fault["type"] == "missing" else fault["msg"].removeprefix("Value error, ")
        found += [(place, line) for line in text.splitlines()]
    return found


def _find_faults_between(overrides: dict[str, object], at_fault: set[str]) -> list[str]:
    """
    What is wrong between the settings that are fine.

    pydantic holds settings against each other only when each is fine, so those at fault get their defaults for it.
    """
    fields = {name.upper(): name for name in Settings.model_fields}
    if "" in at_fault:  # each was fine, and what is between them has been found
        return []
    stand_ins = {
        fields[place]: _STAND_INS.get(fields[place], Settings.model_fields[fields[place]].default)
        for place in at_fault & fields.keys()
    }
    try:
        Settings(**{**overrides, **stand_ins})
    except ValidationError as error:
        return [text for _, text in _read(error) if at_fault.isdisjoint(re.findall(r"\w+", text))]
    return []
