"""The beat of a worker process: what must be told even when something else cannot."""

from types import SimpleNamespace

from shared.coordination import keys
from shared.coordination.redis import RedisUnavailable
from tests.integration.workers.inprocess import InProcess
from tests.support.waiting import wait_until
from workers.middleware.heartbeat import Heartbeats


def test_a_worker_whose_guards_cannot_ask_redis_is_still_known_to_the_broker_as_alive(worker: InProcess) -> None:
    def impatient() -> None:
        raise RedisUnavailable("slow")

    worker.runtime.each_beat.insert(0, impatient)
    beats = Heartbeats(worker.runtime, version="1")
    beats.after_worker_boot(worker.broker, SimpleNamespace(consumers={}, workers=[]))
    client = worker.broker.client
    key = keys.BROKER_HEARTBEATS.name(worker.broker.namespace)
    try:
        wait_until(lambda: client.zscore(key, worker.broker.broker_id), what="a beat")
    finally:
        beats.after_worker_shutdown(worker.broker, None)
