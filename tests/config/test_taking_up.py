"""When a change of each setting takes effect: every key of the settings file is classed, and a change of each class is seen."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from supervisor.config import user
from supervisor.config.user import UserModel


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Every model inside an annotation such as `dict[str, Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not isinstance(annotation, types.GenericAlias):
        yield annotation
    for part in typing.get_args(annotation):
        yield from models_in(part)


def keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key that holds a value, dotted; the names of tables such as `[upstream.NAME]` are left out."""
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        if not inner:
            yield before + (field.alias or name)
        for found in inner:
            yield from keys(found, f"{before}{name}.")


def test_every_setting_is_live_or_needs_a_restart() -> None:
    found = set(keys(UserModel))
    assert {"slots", "queue.weights", "upstream.classes.rpm", "keep.logs.age", "route.as"} <= found
    assert sorted(found - user.LIVE - user.RESTART - {user.PORT}) == []
    assert sorted((user.LIVE | user.RESTART | {user.PORT}) - found) == []
    assert sorted(user.LIVE & user.RESTART) == []


def test_the_manual_says_which_settings_are_taken_up_without_a_restart() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    section = manual.partition("### When a change takes effect")[2].partition("###")[0]
    port = section.index("| `gateway.port`")
    named = set(re.findall(r"`([a-z_.]+)`", section[:port]))
    assert {key for key in keys(UserModel) if key in named or key.partition(".")[0] in named} == user.LIVE


CHANGES = {
    "slots = 3": ["slots"],
    "slots = 3\nnice = 7\n[limits]\nlog_max = '1MiB'": ["limits.log_max", "nice", "slots"],
    "[keep.logs]\nage = '2d'": ["keep.logs.age"],
    "[quota.search]\nrate = '1/s'": ["quota.burst", "quota.rate"],
    "[queue.weights]\nci = 0.5": ["queue.weights"],
    "pass_env = ['A']\n[agents]\nkind = 'codex'": [],
    "[upstream.x]\napi = 'openai'\n[gateway]\nhold = '60s'": [],
    "nice = 5": [],
    "[gateway]\nport = 4000": [],
}


@pytest.mark.parametrize("text", CHANGES)
def test_which_changes_need_a_restart(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    before = user.read(file)
    file.write_text(text)
    after = user.read(file)
    assert user.restart_needed(before, after) == CHANGES[text] == user.restart_needed(after, before)
