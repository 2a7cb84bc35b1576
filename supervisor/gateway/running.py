"""The gateway from ready to gone, once the process is prepared."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

from supervisor.gateway import listen, process_lock
from supervisor.gateway.gateway import Gateway, Place
from supervisor.gateway.settings import Reading
from supervisor.host import unix_sockets
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home

_STOPS = (signal.SIGTERM, signal.SIGINT)


def run(home: Home, config: Path, reading: Reading, complaints: list[str]) -> None:
    """Serve until SIGTERM, SIGINT or a stop. `complaints` go to the log. Raises what keeps it from starting."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(Place(home, config, SystemClock()), reading, complaints))


async def _serve(place: Place, reading: Reading, complaints: list[str]) -> None:
    gateway = Gateway(place, reading.result())
    # A port that the settings name is taken as it is; otherwise the one of before, because agents that outlived it still send there.
    tcp = listen.on_port(gateway.settings.port or process_lock.kept_port(place.home))
    port = int(tcp.getsockname()[1])
    unix = listen.on_path(place.home.gateway_socket)
    _listen(gateway.stop_asked)
    await gateway.start([tcp, unix], port)
    for complaint in complaints:
        gateway.log.say(complaint)
    gateway.log.say(f"ready on {listen.HOST}:{port}")
    record = process_lock.record(port, gateway.settings.upstreams, place.clock)
    process_lock.write(place.home, record)  # last: whoever reads it finds all the rest

    def note_upstreams() -> None:
        if record["upstreams"] != (now := process_lock.names(gateway.settings.upstreams)):
            record["upstreams"] = now
            process_lock.write(place.home, record)

    gateway.on_reload = note_upstreams
    _be_silent()
    # What was imported and built stays for ever: looking through it again cost the streams 50 to 190 ms at each full collection.
    gc.collect()
    gc.freeze()

    async def bind() -> None:
        await gateway.listen(listen.on_path(place.home.gateway_socket))

    kept = asyncio.get_running_loop().create_task(unix_sockets.keep(place.home.gateway_socket, bind, gateway.log.say))
    await gateway.stop_asked.wait()
    kept.cancel()
    gateway.log.say("stopping")
    place.home.gateway_socket.unlink(missing_ok=True)
    await gateway.close()
    gateway.log.say("stopped")
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


def _listen(stop_asked: asyncio.Event) -> None:
    """A stop that is asked for by a signal. The loop's own handlers bring the default back when it closes: asked once more, a gateway that
    has ended well would be killed."""
    loop = asyncio.get_running_loop()

    def heard(number: int, frame: object) -> None:  # noqa: ARG001 - what a handler gets
        loop.call_soon_threadsafe(stop_asked.set)

    for number in _STOPS:
        signal.signal(number, heard)


def _be_silent() -> None:
    """From here on everything is said to the log, which is clean of secrets; what a library prints goes nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
