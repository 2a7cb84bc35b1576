"""Run the gate of a map's task that was queued before its check moved: the command of such a task names this module."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("supervisor.features.map.worker.check", run_name="__main__")
