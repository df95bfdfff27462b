"""A worker process as `dramatiq workers.main` makes it: what it declares, and that it says so once."""

import json
import subprocess
import sys

from shared.jobs import JobName, QueueName
from tests.support.processes import CHECKOUT

_LOOK = """
import json, sys
import workers.main as main
from dramatiq.brokers.redis import RedisBroker
made = []
print(json.dumps({
    "actors": sorted((actor.actor_name, actor.queue_name) for actor in main.broker.actors.values()),
    "queues": sorted(main.broker.queues),
    "delay_queues": sorted(main.broker.delay_queues),
    "middleware": [type(each).__name__ for each in main.broker.middleware],
}))
"""


def look(database_url: str, redis_url: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _LOOK],
        cwd=CHECKOUT,
        env={"DATABASE_URL": database_url, "REDIS_URL": redis_url, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_actor_queue_and_middleware_is_registered_once(database_url: str, redis_url: str) -> None:
    done = look(database_url, redis_url)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, _ in found["actors"]] == sorted(JobName)
    assert found["queues"] == sorted(QueueName)
    assert found["delay_queues"] == []
    assert len(found["middleware"]) == len(set(found["middleware"]))
    assert not set(found["middleware"]) & {"TimeLimit", "ShutdownNotifications", "AgeLimit", "Callbacks", "Pipelines"}


def test_a_provider_that_lacks_settings_is_named_at_the_start_with_what_it_lacks(
    database_url: str, redis_url: str
) -> None:
    done = look(database_url, redis_url, EMAIL_PROVIDER="ches", CHES_CLIENT_SECRET="hunter2", SMS_PROVIDER="sandbox")
    assert done.returncode == 0, done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if "provider_not_configured" in line]
    assert len(said) == 1
    assert all(name in said[0] for name in ("email", "ches", "CHES_BASE_URL", "CHES_TOKEN_URL", "CHES_CLIENT_ID"))
    assert "CHES_CLIENT_SECRET" not in said[0]
    assert "hunter2" not in done.stdout + done.stderr


def test_a_worker_with_wrong_settings_ends_with_all_faults_and_no_secret(redis_url: str) -> None:
    done = look("mysql://u:hunter2@db/x", redis_url, BATCH_SIZE="0", LEASE_MS="soon")
    assert done.returncode != 0
    for name in ("DATABASE_URL", "BATCH_SIZE", "LEASE_MS"):
        assert name in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
