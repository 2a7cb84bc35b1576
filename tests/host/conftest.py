from __future__ import annotations

from tests.agents.runner.conftest import lab as lab
