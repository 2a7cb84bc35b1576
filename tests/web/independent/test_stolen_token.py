"""What a stolen token of a program opens."""

from __future__ import annotations

import pytest

from tests.cli.api.kit import Served
from tests.web.independent.attacker import Attacker

STEERING = ["LD_PRELOAD", "LD_AUDIT", "HOME", "XDG_CACHE_HOME", "npm_config_cache", "CARGO_HOME", "NUGET_PACKAGES", "PATH", "HARMLESS"]


@pytest.mark.parametrize("name", STEERING)
def test_a_confined_token_names_no_variable(attacker: Attacker, name: str) -> None:
    """Each of these was a way out of the sandbox: what a cache's variable names is open for writing, and a library that is loaded before
    the sandbox is closed runs outside."""
    refused = attacker.api("POST", "/tasks", {"command": "true", "params": {name: "/etc"}})
    assert refused.status == 422 and refused.is_problem and refused.json["errors"][0]["field"] == "params"


def test_one_that_a_person_let_out_does(served: Served) -> None:
    let_out = Attacker(served.port, served.token("let-out", "--unconfined"))
    made = let_out.api("POST", "/tasks", {"command": 'test "$GREETING" = hello', "params": {"GREETING": "hello"}})
    assert made.status == 201
    assert let_out.api("GET", f"/tasks/{made.json['id']}/wait?timeout=60").json["state"] == "done"
