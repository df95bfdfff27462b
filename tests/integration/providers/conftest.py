from collections.abc import Iterator

import pytest

from tests.support.scripted_smtp import ScriptedSmtp, scripted_smtp


@pytest.fixture
def relay() -> Iterator[ScriptedSmtp]:
    with scripted_smtp() as relay:
        yield relay
