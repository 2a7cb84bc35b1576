"""Trains of merges and groups of candidates, the newest first, each with what a person can type."""

from __future__ import annotations

import sqlite3
from typing import Any

from supervisor.core.errors import one_line
from supervisor.core.landing import Train
from supervisor.core.units import rfc3339
from supervisor.faces import candidates, landing
from supervisor.faces.web.models.asked import Asked, before, opened
from supervisor.faces.web.models.projects import chosen
from supervisor.host.paths import Home
from supervisor.ledger import trains as rows
from supervisor.ledger.branches import LOOKED_AT
from supervisor.ledger.trains import TrainRow

TRAINS, ENTRIES, GROUPS = 10, 100, 20
_GROUPS = """
SELECT id FROM task WHERE ord > (SELECT coalesce(max(ord), 0) FROM task) - ? AND project = ?
AND coalesce(json_extract(spec, '$.decide'), '') <> '' ORDER BY ord DESC LIMIT ?
"""
Shape = dict[str, Any]


def trains(home: Home, asked: Asked) -> Shape:
    """`trains` of a project, and `older`: the number before which the next ones are; on the first page `groups`, of the newest tasks."""
    with opened(home.ledger) as db:
        project, projects = chosen(db, asked)
        found = rows.newest(db, project, at_most=TRAINS + 1, before=before(asked))
        return {
            "project": project,
            "projects": projects,
            "trains": [_train(row) for row in found[:TRAINS]],
            "older": found[TRAINS - 1].number if len(found) > TRAINS else None,
            "groups": [] if asked.get("before") else _groups(db, project),
        }


def _train(row: TrainRow) -> Shape:
    train = row.train
    shape = landing.shape(row)
    entries = [
        {**one, "title": one_line(entry.title), "type": [*filter(None, landing.commands(train, entry))]}
        for one, entry in zip(shape["entries"], train.entries, strict=True)
    ]
    return {
        **shape,
        "began": rfc3339(row.began), "changed": rfc3339(row.changed), "said": landing.summary(train), "type": _commands(train),
        "entries": entries[:ENTRIES], "more_entries": max(0, len(entries) - ENTRIES),
    }  # fmt: skip


def _commands(train: Train) -> list[str]:
    return [*filter(None, (train.by_hand, landing.next_command(train)))]


def _groups(db: sqlite3.Connection, project: str) -> list[Shape]:
    names = [str(row[0]) for row in db.execute(_GROUPS, (LOOKED_AT, project, GROUPS))]
    found = {one["group"]: one for one in candidates.of_tasks(db, names)}
    return [_group(found[name]) for name in names if name in found]


def _group(one: Shape) -> Shape:
    return {**one, "heads": candidates.HEADS[1:], "cells": [list(row) for row in candidates.cells(one)], "why": candidates.reasons(one)}
