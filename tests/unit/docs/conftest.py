"""Prometheus's own tool, for what is written in its words."""

import os
import shutil

import pytest


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        missing = "promtool is not here; Debian has it in the package prometheus"
        if os.environ.get("CI"):  # noqa: TID251
            pytest.fail(missing)
        pytest.skip(missing)
    return found
