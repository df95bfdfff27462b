import re
from pathlib import Path

import pytest

from shared.coordination import keys

ROOT = Path(__file__).parents[3]
#: What only a key looks like: the broker's suffixes, and a namespace's parts.
BUILT_KEY = re.compile(
    r"""["'][^"'\n]*(:circuit|:gate\b|:slots|:lock["']|:fence["']|:worker:|:workers["']|:doorbell|:minutes:|"""
    r"""\.msgs\b|\.XQ\b|__acks__)"""
)


def test_the_page_of_keys_is_the_code() -> None:
    page = (ROOT / "docs" / "redis-keys.md").read_text(encoding="utf-8")
    assert page == keys.as_markdown(), "run: python -m shared.coordination.keys > docs/redis-keys.md"


def test_no_key_is_spelled_outside_its_module() -> None:
    sources = [path for folder in ("shared", "workers", "admin") for path in (ROOT / folder).rglob("*.py")]
    spelled = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources
        if path.name != "keys.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if BUILT_KEY.search(line)
    ]
    assert spelled == []


def test_scripts_use_the_keys_they_are_given() -> None:
    for path in (ROOT / "shared" / "coordination" / "lua").glob("*.lua"):
        source = path.read_text(encoding="utf-8")
        assert re.search(r"call\('(KEYS|SCAN|FLUSH)", source) is None, path.name
        assert re.search(r"""['"][^'"]*:[a-z]+['"]\s*\.\.""", source) is None, path.name
        assert len(source.splitlines()) <= 64, path.name


def test_every_template_is_listed_once() -> None:
    listed = keys.OURS + keys.BROKERS
    defined = [value for value in vars(keys).values() if isinstance(value, keys.Key)]
    assert sorted(key.template for key in listed) == sorted(key.template for key in defined)
    assert len({key.template for key in listed}) == len(listed)


def test_keys_of_one_provider_share_a_cluster_slot() -> None:
    part = keys.provider_part("ches", "a1")
    names = [
        key.name("tidings", provider=part)
        for key in (
            keys.CIRCUIT,
            keys.CIRCUIT_FAILURES,
            keys.GATE,
            keys.GATE_GROWTH,
            keys.SLOT_LEASES,
            keys.SLOT_COUNTS,
        )
    ]
    assert {name[name.index("{") : name.index("}") + 1] for name in names} == {"{ches:a1}"}
    assert len(set(names)) == 6


def test_a_key_without_all_its_parts_is_refused() -> None:
    with pytest.raises(KeyError):
        keys.WORKER.name("tidings")
