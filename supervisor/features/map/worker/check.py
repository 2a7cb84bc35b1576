"""Check an agent's answer against a JSON schema: a gate, run where the agent was.

Exit 0: the answer matches; 1: it does not, and stdout says why. The agent is told why and tries once more, in the same conversation
where its kind can.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from supervisor.features.map.prompts import ANSWER, FAULTS_SHOWN, AnswerSchema, NoJson, answers

ANSWER_MAX = 2**20
"""Bytes of an answer."""
ASKED = "NIGHTCREW_MAP_ANSWER"
"""Variable of the task: JSON, with the `schema` and the names of the `items`."""


def faults(environ: Mapping[str, str]) -> list[str]:
    """What is wrong with the answer; empty: nothing."""
    asked, path = json.loads(environ[ASKED]), Path(environ["NIGHTCREW_OUT"], ANSWER)
    try:
        with path.open("rb") as file:
            data = file.read(ANSWER_MAX + 1)
    except FileNotFoundError:
        return [f"there is no answer in {path}"]
    except OSError as error:
        return [f"the answer in {path} cannot be read: {error.strerror}"]
    if len(data) > ANSWER_MAX:
        return [f"the answer in {path} is larger than {ANSWER_MAX} bytes"]
    try:
        values = answers(data, asked["items"])
    except NoJson as error:
        return [f"the answer in {path}: {error}"]
    schema = AnswerSchema(asked["schema"])
    several = len(asked["items"]) > 1
    found = [(name, fault) for name, value in zip(asked["items"], values, strict=True) for fault in schema.faults(value)]
    return [f"{name}: {fault}" if several else fault for name, fault in found][:FAULTS_SHOWN]


if __name__ == "__main__":
    wrong = faults(os.environ)
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)
