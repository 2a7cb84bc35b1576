"""What the gateway knows of engines, and what it tells."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.config.gateway import GatewayKeys, settings
from supervisor.gateway import engines as records
from supervisor.gateway.admission.types import EngineChanged
from supervisor.gateway.engines import Engines as View
from supervisor.host import files
from supervisor.kernel import codec
from supervisor.kernel.engines import EngineRecord, EngineState
from supervisor.kernel.gateway_settings import GatewaySettings
from tests.engines.kit import Engines

pytestmark = pytest.mark.asyncio
READY = EngineRecord("small", EngineState.READY, url="http://127.0.0.1:1", slots=2, context=1024)


class Told:
    """Stands in for admission: keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.traffic = SimpleNamespace(tickets={})

    def tell(self, event: Any) -> None:
        """As `Admission.tell`."""
        self.events.append(event)


def named(**tables: dict[str, Any]) -> GatewaySettings:
    return settings(GatewayKeys.model_validate({"engine": tables}), None)


def write(engines: Engines, record: EngineRecord) -> None:
    files.atomic_write(engines.home.engines / f"{record.name}.json", codec.dumps(record).encode())


async def test_admission_is_told_once_of_each_change(engines: Engines) -> None:
    told: Any = Told()
    view = View(engines.home, named(small={"model": "m"}), told)
    view.look()
    write(engines, READY)
    view.look()
    view.look()
    write(engines, replace(READY, state=EngineState.STOPPED))
    view.look()
    (engines.home.engines / "small.json").write_text("{")
    view.look()
    view.close()
    stopped = replace(READY, state=EngineState.STOPPED)
    assert told.events == [EngineChanged("small", one) for one in (None, READY, stopped, None)]


async def test_an_upstream_has_the_address_of_now(engines: Engines) -> None:
    told: Any = Told()
    known = named(small={"model": "m"})
    view = View(engines.home, known, told)
    openai = known.upstreams[0]
    assert view.ready(openai) is None
    write(engines, READY)
    view.look()
    assert view.ready(openai) == replace(openai, url=READY.url)
    assert view.record("small") == READY
    write(engines, replace(READY, state=EngineState.STARTING))
    view.look()
    assert view.ready(openai) is None
    view.close()


async def test_requests_that_wait_or_are_served_need_their_engine(engines: Engines) -> None:
    told: Any = Told()
    view = View(engines.home, named(small={"model": "m"}, other={"model": "m"}), told)
    view.need(["work"])
    view.look()
    assert [file.name for file in engines.home.engines.glob("*.need")] == []
    told.traffic.tickets[1] = SimpleNamespace(event=SimpleNamespace(upstreams=("work", "small.anthropic")))
    view.look()
    assert [file.name for file in engines.home.engines.glob("*.need")] == ["small.need"]
    view.need(["other.openai"])
    assert records.need_file(engines.home, "other").exists()
    view.close()
