"""What a one-click deployment starts with."""

import json

from shared.settings import Settings
from tests.support.processes import CHECKOUT


def test_the_fleet_is_named_as_it_is_started() -> None:
    app = json.loads((CHECKOUT / "app.json").read_text())
    fleet = " ".join(f"{name}={process['quantity']}" for name, process in app["formation"].items())
    assert app["env"]["FLEET"]["value"] == fleet == Settings.model_fields["fleet"].default


def test_it_sets_nothing_that_is_no_setting() -> None:
    app = json.loads((CHECKOUT / "app.json").read_text())
    assert {name.lower() for name in app["env"]} <= set(Settings.model_fields)
