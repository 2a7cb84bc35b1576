"""What `up -d` and the first `run` say of the gateway."""

from __future__ import annotations

import json
import socket

from supervisor.client import protocol
from supervisor.host import files
from tests.gateway.kit import KEY, know_prices, upstream
from tests.support import House

DEAD_END = "http://127.0.0.1:9"
"""Nobody listens there, and nothing is sent."""


def up(house: House, more: str = "") -> str:
    """What `up -d` says with an upstream in the settings."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    house.config.write_text(f"{house.config.read_text()}{upstream(house.home, DEAD_END)}{more}")
    return house.run("up", "-d").stderr


def test_it_says_where_the_gateway_listens_and_which_key_is_missing(house: House) -> None:
    other = house.home.keys / "other.key"
    said = up(house, upstream(house.home, DEAD_END, name="other", key=None))
    record = house.gateway()
    assert record is not None and f"nightcrew: the gateway listens on 127.0.0.1:{record.port}\n" in said
    assert f"no file {other}" in said and "sim.key" not in said
    assert house.run("gateway", "status").stdout.startswith("gateway  up ")


def test_it_says_why_the_gateway_does_not_start(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = up(house, f"[gateway]\nport = {taken.getsockname()[1]}\n")
    assert "the gateway did not start, and nothing new starts until it does: cannot listen 127.0.0.1" in said or (
        "the gateway is being started; nothing new starts before it is ready" in said  # a machine so slow that the 15 s are over first
    )


def test_a_key_in_the_shell_is_offered_to_the_gateway_and_not_taken(house: House) -> None:
    files.private_dir(house.home.root)
    know_prices(house.home)
    secret = {"ANTHROPIC_API_KEY": KEY}
    said = house.run("add", "true", env=secret).stderr
    assert "nightcrew: ANTHROPIC_API_KEY is set: nightcrew up -d gives it to the gateway\n" in said
    assert not house.home.keys.exists() and KEY not in said
    assert "up -d gives" not in house.run("add", "true", env=secret).stderr, "only who starts the supervisor hears it"
    assert "the gateway listens on" in house.run("up", "-d", env=secret).stderr
    house.ok("down")
    assert "up -d gives" not in house.run("add", "true", env=secret).stderr


def test_up_and_doctor_name_the_settings_that_need_a_restart(house: House) -> None:
    before = house.config.read_text()
    house.ok("up", "-d")
    house.config.write_text(f'slots = 3\npass_env = ["A"]\n{before}')
    said = house.run("up", "-d").stderr
    words = "slots changed since the supervisor started; to take it up: nightcrew down && nightcrew up -d (agents go on)"
    assert f"nightcrew: {words}\n" in said
    assert words in protocol.call(house.home.daemon_socket, "ping", {}, timeout_s=30)["alerts"]
    found = json.loads(house.run("doctor", "--json").stdout)
    (check,) = (each for each in found["checks"] if each["name"] == "settings")
    assert check["state"] == "warn" and "slots changed" in check["seen"], check
    house.ok("down")
    assert "changed since" not in house.run("up", "-d").stderr
    assert protocol.call(house.home.daemon_socket, "ping", {}, timeout_s=30)["slots"] == 3
    house.config.write_text(before)
    house.config.write_text(f"slots = [\n{before}")
    done = house.run("up", "-d")
    assert done.returncode == 3 and "config.toml:2" in done.stderr, "a broken file is named, and the supervisor keeps what it has"


def test_a_port_that_changed_waits_for_the_next_gateway(house: House) -> None:
    assert "gateway.port" not in up(house)
    house.config.write_text(house.config.read_text() + "[gateway]\nport = 4321\n")
    said = house.run("up", "-d").stderr
    assert "gateway.port changed; to take it up, once no agent lives: nightcrew down && nightcrew up -d\n" in said
