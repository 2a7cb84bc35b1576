"""What a person says of a night, and what `[night]` of config.toml does, as terms. It runs in the command, not in the supervisor."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from supervisor.config import user
from supervisor.config.task_keys import moment
from supervisor.config.toml import Once
from supervisor.host import cores
from supervisor.kernel.errors import UsageError
from supervisor.kernel.night import NightDefaults, NightOrder, NightTerms
from supervisor.kernel.spec import ABSOLUTE_FROM


def order(plan: Path, said: Mapping[str, Any], files: Once, *, timer: str = "", due: datetime | None = None) -> NightOrder:
    """The night that the file `plan` shall be. `said`: texts by the keys of `[night]`, None for what was not said. `files` has
    the plan.

    `until` is resolved here, once: a time of day means the next time that this machine's clock shows it, after `due` when that is given:
    when the night should have begun, local time. Raises UsageError for a text that is no such term, ConfigError for the settings.
    """
    terms = resolve(said, user.load(user.path(), len(cores.usable())).night, due)
    return NightOrder(terms, str(plan.absolute()), hashlib.sha256(files.raw(plan)).hexdigest(), timer)


def resolve(said: Mapping[str, Any], defaults: NightDefaults, due: datetime | None = None) -> NightTerms:
    """The terms, of texts as `order` says and the user's defaults."""
    given = {name: text for name, text in said.items() if text is not None}
    try:
        model = user.NightModel.model_validate({name: _typed(name, text) for name, text in given.items()})
        until = _until((model.until if "until" in given else defaults.until) or "", due)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UsageError(
            "not a night", on=f"--{str(wrong['loc'][0]).replace('_', '-')}", why=wrong["msg"].removeprefix("Value error, ")
        ) from None
    chosen = model.defaults()
    return NightTerms(
        until=until,
        grace_s=chosen.grace_s if "grace" in given else defaults.grace_s,
        cost_max=chosen.cost_max or defaults.cost_max,
        parallel=chosen.parallel or defaults.parallel,
        on_cap=chosen.on_cap if "on_cap" in given else defaults.on_cap,
    )


def _typed(name: str, text: str) -> Any:
    number = {"cost_max": float, "parallel": int}.get(name)
    try:
        return number(text) if number is not None else text
    except ValueError:
        return text  # the model says what is wrong with it


def _until(text: str, due: datetime | None) -> float:
    """Seconds since 1970; 0 for no such time."""
    at = float(moment(text, due)) if text else 0.0
    return at if not at or at >= ABSOLUTE_FROM else (time.time() if due is None else due.timestamp()) + at
