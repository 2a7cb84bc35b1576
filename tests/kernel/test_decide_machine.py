"""`decide` over random lives: see `machine` for what happens and `playbook.Books` for what must never be commanded."""

from __future__ import annotations

from hypothesis import settings

from tests.kernel.machine import CrewMachine
from tests.rounds import examples

TestCrew = CrewMachine.TestCase
TestCrew.settings = settings(max_examples=examples(80), stateful_step_count=40, report_multiple_bugs=False)
