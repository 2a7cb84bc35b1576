"""The floor: an aiohttp proxy that passes requests on and does nothing else. It has no agents, no limits and no account."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys

import aiohttp
from aiohttp import web

_PASSED_ON = ("content-type", "authorization", "anthropic-version")


async def _serve(url: str) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
            async with session.post(url + request.path_qs, data=body, headers=headers) as answer:
                passed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")})
                await passed.prepare(request)
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
                await passed.write_eof()
            return passed

        runner = web.ServerRunner(web.Server(forward))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await stopped.wait()
        await runner.cleanup()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    options = parser.parse_args()
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.run(_serve(options.url))
        sys.exit(0)
    asyncio.run(_serve(options.url))


if __name__ == "__main__":
    main()
