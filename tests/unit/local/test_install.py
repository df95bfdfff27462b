import sys

import pytest

from admin.local.install import _run_pip

#: As pip writes it: a pin for another platform is ignored, the others are collected.
PIP = """
print("Ignoring colorama: markers 'sys_platform == \\"win32\\"' don't match your environment")
print("Collecting click==8.3.1")
print("Requirement already satisfied: flask==3.1.2 in place")
print("Installing collected packages: click")
"""


def test_the_count_of_packages_ends_at_the_full_count(capsys: pytest.CaptureFixture[str]) -> None:
    _run_pip([sys.executable, "-c", PIP], total=3)

    assert capsys.readouterr().out == "\r    2 of 2 fetched, installing them\n"
