from shared.coordination import keys
from shared.coordination.redis import RedisLink
from shared.coordination.slot_waits import SlotWaits
from shared.domain.pace import percentile


def waits_of(link: RedisLink, namespace: str, provider: str = "smtp") -> SlotWaits:
    return SlotWaits(link, provider=provider, credential="a1", namespace=namespace)


def test_waits_of_all_processes_are_one_distribution(link: RedisLink, namespace: str) -> None:
    for _ in range(2):
        waits = waits_of(link, namespace)
        for _ in range(45):
            waits.count(0.001)
        for _ in range(5):
            waits.count(0.6)
        waits.flush()
        waits.flush()  # what was told is not told twice
    found = waits_of(link, namespace).read()
    assert sorted(found.values()) == [10, 90]
    p95_s = percentile(found, 0.95)
    assert p95_s is not None
    assert 0.5 <= p95_s < 0.7
    assert waits_of(link, namespace, "ches").read() == {}


def test_a_minutes_counts_go_by_themselves(link: RedisLink, namespace: str) -> None:
    waits = waits_of(link, namespace)
    waits.count(3.0)
    waits.flush()
    pattern = keys.SLOT_WAITS.name(namespace, provider="smtp:a1", minute="*")
    (found,) = link.pipeline([("KEYS", pattern)])
    assert len(found) == 1
    (lasts_s,) = link.pipeline([("TTL", found[0])])
    assert 0 < lasts_s <= 600
