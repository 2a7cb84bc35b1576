"""docs/observability.md and the files beside it name every metric, and none that there is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from supervisor.features.metrics import catalog
from supervisor.features.metrics.catalog import MetricType
from tests.observability.kit import OBSERVABILITY, ROOT, promtool

PAGE = (ROOT / "docs" / "observability.md").read_text()
RULES = OBSERVABILITY / "rules.yml"
TESTS = ROOT / "tests" / "observability" / "rules_test.yml"


def described() -> set[tuple[str, str, tuple[str, ...], str]]:
    rows = re.findall(r"^\| `(nightcrew_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE, re.MULTILINE)
    return {(name, kind, tuple(re.findall(r"`(\w+)`", labels)), words) for name, kind, labels, words in rows}


def served() -> set[tuple[str, str, tuple[str, ...], str]]:
    return {(one.name, str(one.type), one.labels, one.help) for one in catalog.every()}


def panels(board: Any) -> Iterator[Any]:
    return (panel for panel in board["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    """Of the board and of the rules."""
    board, rules = json.loads((OBSERVABILITY / "board.json").read_text()), yaml.safe_load(RULES.read_text())
    return [
        *(target["expr"] for panel in panels(board) for target in panel["targets"]),
        *(rule["expr"] for group in rules["groups"] for rule in group["rules"]),
    ]


def named(expression: str) -> set[str]:
    """The metrics in it."""
    return {metric_of(name) for name in re.findall(r"nightcrew_\w+", expression)}


def metric_of(name: str) -> str:
    """Without what a histogram adds."""
    return name if name in catalog.BY_NAME else re.sub(r"_(bucket|count|sum)$", "", name)


def test_every_metric_is_described_and_every_description_is_of_one() -> None:
    assert described() == served()


def test_board_and_rules_name_metrics_that_there_are_with_labels_that_they_have() -> None:
    for expression in expressions():
        assert named(expression) <= set(catalog.BY_NAME), expression
        for name, matchers in re.findall(r"(nightcrew_\w+)\{(.*?)\}", expression):
            metric = catalog.BY_NAME[metric_of(name)]
            assert {part.partition("=")[0].rstrip("!") for part in matchers.split(",")} <= {*metric.labels, "le"}, expression


def test_the_board_shows_every_metric() -> None:
    board = json.loads((OBSERVABILITY / "board.json").read_text())
    shown = {name for panel in panels(board) for target in panel["targets"] for name in named(target["expr"])}
    assert set(catalog.BY_NAME) - shown == set()


def test_the_board_is_one_that_grafana_takes() -> None:
    board = json.loads((OBSERVABILITY / "board.json").read_text())
    assert board["uid"] == "nightcrew" and board["title"] and board["schemaVersion"] >= 36
    (source,) = board["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not taken & cells, panel["title"]
        taken |= cells
    for panel in panels(board):
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            series = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            known = {label for name in named(target["expr"]) for label in catalog.BY_NAME[name].labels}
            assert series <= known, panel["title"]


def test_every_alert_is_tested_where_it_fires_and_where_it_does_not() -> None:
    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    cases = [case for test in yaml.safe_load(TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts


def test_every_alert_says_what_to_do() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "do"} and rule["labels"]["severity"] in ("info", "warning", "critical")


def test_rules_and_configuration_are_valid() -> None:
    for words in (("check", "rules", str(RULES)), ("check", "config", "--syntax-only", str(OBSERVABILITY / "prometheus.yml"))):
        done = promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_fire_when_they_should() -> None:
    done = promtool("test", "rules", str(TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_old_names_are_no_longer_told_to_anybody() -> None:
    assert not [expression for expression in expressions() if "sup_" in expression]
    assert {metric.old for metric in catalog.every() if metric.type is MetricType.COUNTER and metric.old} and "sup_" in PAGE


def test_grafanas_own_schema_knows_all_of_the_board() -> None:
    """The server is in no registry; what it writes its schema into is."""
    register_default_plugins()
    board = json.loads((OBSERVABILITY / "board.json").read_text())
    assert lost(board, json.loads(JSONEncoder().encode(Dashboard.from_json(board)))) == []
    broken = json.loads(json.dumps(board))
    broken["panels"][1]["gridPos"]["width"] = 4
    assert lost(broken, json.loads(JSONEncoder().encode(Dashboard.from_json(broken)))) == ["/panels/1/gridPos/width"]


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """What one has and the other has not, or otherwise."""
    match before, after:
        case dict(), dict():
            return [each for key, value in before.items() for each in lost(value, after.get(key), f"{path}/{key}")]
        case list(), list() if len(before) == len(after):
            return [each for number, pair in enumerate(zip(before, after, strict=True)) for each in lost(*pair, f"{path}/{number}")]
        case _:
            return [] if before == after else [path]
