"""Whatever a file holds, reading it gives a plan, settings, or one ConfigError."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.config import plan, user
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.kind import Kind
from supervisor.kernel.settings import Settings
from supervisor.kernel.spec import RunSpec
from tests.rounds import examples

MARKS = ["[", "]", "{", "}", "=", ".", ",", "#", "\n", "\t", '"', "'", '"a"', "[[tasks]]\n", "[defaults]\n"]
NUMBERS = ["true", "-1", "1e309", "nan", "9" * 30, '"5m"', '"64MiB"', "1979-05-27"]
NAMES = """id title command prompt prompt_file after kind params priority class timeout retries cores slots grace nice pass_env limits
           log_max str int list[int]""".split()  # noqa: SIM905 - a list of twenty lines says no more
WORDS = st.sampled_from([*MARKS, *NUMBERS, *NAMES])
ATOMS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.sampled_from(["5m", "1k", "a"])
SHAPES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=4
)
KEYS = st.sampled_from(NAMES) | st.text(max_size=3)


def toml(value: Any) -> str:
    """Any JSON-like value as an inline TOML value, right or wrong."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")


def tables(head: str) -> st.SearchStrategy[str]:
    keys = st.dictionaries(KEYS, SHAPES, max_size=5)
    return keys.map(lambda shape: head + "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in shape.items()))


TEXTS = st.one_of(
    st.binary(),
    st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(WORDS, max_size=40).map(lambda words: "".join(words).encode()),
    st.lists(st.sampled_from(["", "[defaults]\n", "[[tasks]]\n", "[limits]\n", "[cores]\n"]).flatmap(tables), max_size=3).map(
        lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
    ),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "any.toml"


def refused(load: Callable[[], RunSpec | Settings]) -> str:
    """What the error names; empty when there was none. Any other exception is the failure that is looked for."""
    try:
        load()
    except ConfigError as error:
        return error.on
    return ""


@settings(max_examples=examples(300))
@given(data=TEXTS)
def test_any_bytes_are_a_plan_or_a_config_error(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    on = refused(lambda: plan.load(file, {name: Kind(name, "") for name in ("shell", "terminal")}))
    assert on == "" or on.startswith(str(file))


@settings(max_examples=examples(200))
@given(data=TEXTS)
def test_any_bytes_are_settings_or_a_config_error(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    on = refused(lambda: user.load(file, 4))
    assert on == "" or on.startswith(str(file))
