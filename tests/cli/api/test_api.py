"""The task API over HTTP: what it takes, what it answers, and whom it tells what."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from supervisor.store import sqlite
from supervisor.store.rows import launch
from tests.cli.api.kit import Served
from tests.support import wait_until


def test_a_task_from_its_submission_to_its_patch(served: Served, token: str) -> None:
    made = served.submit(token, id="one", command="echo hello; echo new > file", title="Make a file", **{"class": "batch"}, priority=70)
    assert made.status == 201, made.data
    task = made.json["id"]
    assert made.headers["location"] == f"/api/v1/tasks/{task}" and made.json["priority"] == 70 and made.json["class"] == "batch"
    with closing(sqlite.connect_readonly(served.house.home.ledger)) as db:
        spec = launch(db, task).spec
    assert spec.submitter == "anna", "its share of the starts is its user's"
    ended = served.ask(token, "GET", f"/tasks/{task}/wait?timeout=60").json
    assert (ended["state"], ended["final"], ended["end"]) == ("done", True, "done")
    result = served.ask(token, "GET", f"/tasks/{task}/result").json
    assert (result["commits"], "+new" in result["patch"], "file | 1 +" in result["stat"]) == (1, True, True)
    assert served.ask(token, "GET", f"/tasks/{task}/result?patch=false").json["patch"] is None
    assert served.ask(token, "POST", f"/tasks/{task}/cancel").json == {"task": task, "asked": False}
    log = served.ask(token, "GET", f"/tasks/{task}/log").data.decode()
    assert 'data: {"attempt": 1, "text": "hello\\n"}' in log and log.rstrip().endswith('"state": "done"}')
    assert served.ask(token, "GET", "/capacity").json["slots"] > 0
    assert str(served.house.repo) not in json.dumps([ended, result, made.json]), "where it lies is nobody's business"


def test_the_same_key_is_one_task_and_another_request_is_refused(served: Served, token: str) -> None:
    first = served.submit(token, "key 1", id="keyed")
    again = served.submit(token, "key 1", id="keyed")
    assert (first.status, again.status, again.json["id"]) == (201, 200, first.json["id"])
    assert served.submit(token, "key 1", id="other").status == 409
    assert served.submit(token, "key 2", id="keyed").json["id"] != first.json["id"]
    assert served.submit(token, "ü", id="keyed").fields == {"Idempotency-Key"}


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"colour": "red"}, "colour"), ({"kind": "nope"}, "kind"), ({"kind": 7}, "kind"),
        *(({"kind": kind}, "kind") for kind in ("terminal", "landing-gate", "map-worker", "map-prompt", "analyst", "lead")),
        ({"base": "nope"}, "base"),
        ({"base": "--all"}, "base"),
        ({"timeout": "soon"}, "timeout"), ({"retries": -1}, "retries"), ({"retries": "1"}, "retries"), ({"id": "../x"}, "id"),
        ({"repository": "/etc"}, "repository"), ({"repository": "other"}, "repository"), ({"after": ["0101-aaaa/x"]}, "after"),
        ({"after": ["x"]}, "after.0"), ({"class": "interactive"}, "class"), ({"command": []}, "command"), ({"command": "a\0b"}, "command"),
        ({"command": None, "prompt": "do it"}, "command"), ({"network": ["no host"]}, "network"),
        ({"sandbox": 0}, "sandbox"), ({"prompt_file": "/etc/passwd"}, "prompt_file"), ({"snapshot": "x"}, "snapshot"),
        ({"submitter": "root"}, "submitter"), ({"params": {"A=B": "x"}}, "params"), ({"memory_max": "much"}, "memory_max"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_field(served: Served, token: str, task: dict[str, Any], field: str) -> None:
    refused = served.submit(token, **task)
    assert (refused.status, refused.fields, refused.json["status"]) == (422, {field}, 422), refused.data


def test_a_list_is_read_page_by_page(served: Served) -> None:
    token = served.token("pages", "--unconfined", "--rate", "1000")
    names = [served.submit(token, id=f"p{number}").json["id"] for number in range(5)]
    found, cursor = [], ""
    while True:
        page = served.ask(token, "GET", f"/tasks?limit=2{cursor}").json
        found += [task["id"] for task in page["tasks"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == names[::-1], "all of its own, and nobody else's"
    assert served.ask(token, "GET", "/tasks?limit=0").fields == {"limit"} and served.ask(token, "GET", "/tasks?state=odd").fields == {
        "state"
    }
    assert served.ask(token, "GET", "/tasks?limit=2&limit=3").status == 422 and served.ask(token, "GET", "/tasks?page=2").fields == {"page"}


def test_whom_it_tells_what(served: Served, token: str) -> None:
    mine = served.submit(token, id="mine", command="sleep 60").json["id"]
    other, all_seeing = served.token("other", "--unconfined"), served.token("boss", "--all-tasks", "--scope", "read")
    reader, submitter = (
        served.token("reader", "--user", "anna", "--scope", "read"),
        served.token("putter", "--scope", "submit", "--unconfined"),
    )
    for path in (f"/tasks/{mine}", f"/tasks/{mine}/wait?timeout=0", f"/tasks/{mine}/result", f"/tasks/{mine}/log?follow=false"):
        answers = [served.ask(one, "GET", path).status for one in (other, all_seeing, reader, submitter)]
        assert answers == [404, 200, 200, 403], path
        gone = served.ask(other, "GET", path.replace(mine, "0101-zzzz/none")).data
        assert gone == served.ask(other, "GET", path).data, "one that is not there, and one of somebody else, are told apart by nothing"
    assert served.ask(reader, "POST", "/tasks", {"command": "true"}).status == 403
    assert served.ask(reader, "POST", f"/tasks/{mine}/cancel").status == 403
    assert served.submit(other, after=[mine]).fields == {"after"}
    assert served.ask(submitter, "GET", "/repositories").json["repositories"][0]["name"] == "shop"
    assert served.ask(token, "POST", f"/tasks/{mine}/cancel").json["asked"]
    assert served.ask(token, "GET", f"/tasks/{mine}/wait").json["state"] == "cancelled"


def test_repositories_are_chosen_by_name_among_those_of_the_token(served: Served) -> None:
    from tests.support import make_repository

    second = make_repository(served.house.home.root.parent / "second", {"a": "b"})
    both = served.token("both", "--unconfined", "--repo", str(second), "--repo", str(served.house.repo))
    assert [one["name"] for one in served.ask(both, "GET", "/repositories").json["repositories"]].count("second") == 1
    assert served.submit(both).fields == {"repository"}, "which of the two?"
    assert served.submit(both, repository="second").status == 201
    known = served.ask(both, "GET", "/repositories").json["repositories"]
    assert served.submit(both, repository=known[0]["id"]).json["repository"] == known[0]["id"]


def test_events_go_on_where_they_were(served: Served, token: str) -> None:
    first = served.submit(token, id="told").json["id"]
    served.ask(token, "GET", f"/tasks/{first}/wait")
    seen: list[tuple[int, str]] = []
    for number, task in served.events(token, "0"):
        seen.append((number, task))
        if len([one for one in seen if one[1] == first]) == 4:
            break
    assert sorted(seen) == seen and len({number for number, _ in seen}) == len(seen)
    half = [number for number, task in seen if task == first][1]
    assert next(served.events(token, str(half)))[0] > half
    assert served.ask(token, "GET", "/events", headers={"Last-Event-ID": "x"}).fields == {"Last-Event-ID"}


def test_a_revoked_token_ends_its_streams(served: Served) -> None:
    token = served.token("short", "--unconfined")
    task = served.submit(token, id="long", command="sleep 60").json["id"]
    ended = threading.Event()

    def follow() -> None:
        served.ask(token, "GET", f"/tasks/{task}/log")
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    waits = threading.Thread(target=lambda: answers.append(served.ask(token, "GET", f"/tasks/{task}/wait?timeout=60").status))
    answers: list[int] = []
    waits.start()
    wait_until(lambda: served.house.task("long").attempt_state == "running", "the task to run")
    served.house.ok("token", "revoke", "short")
    thread.join(60)
    waits.join(60)
    assert ended.is_set() and answers == [401]
    served.house.ok("kill", task)
    assert served.ask(token, "GET", "/token").status == 401 and served.submit(token).status == 401


def test_rate_and_quota(served: Served) -> None:
    token = served.token("slow", "--unconfined", "--rate", "0.001", "--scope", "read")  # two at once would be 0.002: one is the least
    assert served.ask(token, "GET", "/token").status == 200
    refused = served.ask(token, "GET", "/token")
    assert refused.status == 429 and int(refused.headers["retry-after"]) > 900
    few = served.token("few", "--unconfined", "--quota", "2", "--rate", "1000")
    assert [served.submit(few, f"k{number}").status for number in (1, 2, 3)] == [201, 201, 429]
    assert served.submit(few, "k1").status == 200, "what was taken is not counted twice"
    over = served.submit(few, "k3")
    assert 40_000 < int(over.headers["retry-after"]) <= 43_200 and served.ask(few, "GET", "/token").json["left"] == 0


def test_tasks_of_a_token_are_confined_unless_a_person_said_otherwise(served: Served) -> None:
    token = served.token("confined")
    task = served.submit(token).json["id"]
    with closing(sqlite.connect_readonly(served.house.home.ledger)) as db:
        spec = launch(db, task).spec
    assert spec.sandbox == 1 and replace(spec, sandbox=None) != spec, "config.toml of this house says sandbox = 0"
    served.house.ok("kill", task)


def test_without_a_supervisor_it_says_what_to_do(served: Served, token: str) -> None:
    done = served.submit(token, id="before").json["id"]
    served.house.ok("down")
    try:
        refused = served.submit(token, "later", id="later")
        assert (refused.status, refused.json["next"]) == (503, "nightcrew up -d") and int(refused.headers["retry-after"]) > 0
        assert served.ask(token, "GET", f"/tasks/{done}").status == 200, "reading needs none"
        assert served.ask(token, "GET", "/capacity").status == 503
    finally:
        served.house.start_daemon()
    wait_until(lambda: served.submit(token, "later", id="later").status == 201, "the supervisor to take it")
