"""Shared beginnings with the real server of llama.cpp, and a model of random weights whose tokens are bytes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from supervisor.gateway.proxy.upstreams import Timeouts
from tests.engines import tiny_gguf
from tests.engines.gateway_kit import CHAT, MESSAGES, ask, at, message, saved_at
from tests.gateway import kit

SERVER = """
import sys, threading, xllamacpp
model, saved = sys.argv[1:]
options = xllamacpp.CommonParams()
options.model.path = model
options.n_parallel, options.n_ctx, options.port, options.slot_save_path = 3, 3 * 4096, 0, saved + "/"
options.swa_full, options.warmup, options.cpuparams.n_threads = True, False, 1
options.chat_template = "{% for m in messages %}<|{{m.role}}|>{{m.content}}\\n{% endfor %}<|assistant|>"
server = xllamacpp.Server(options)
print(server.listening_address, flush=True)
threading.Event().wait()
"""
SYSTEM = "You are an agent of a crew, and you answer in one short line. " * 33


@pytest.mark.asyncio
async def test_three_that_begin_at_once_share_what_one_slot_holds(tmp_path: Path) -> None:
    place = saved_at(tmp_path)
    place.mkdir(parents=True, mode=0o700)
    command = [sys.executable, "-c", SERVER, str(tiny_gguf.write(tmp_path / "model.gguf")), str(place)]
    settings = '[engine.local]\nkind = "llamacpp"\nmodel = "/none.gguf"\nslots = 3\ncontext = 4096\n'
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = (await asyncio.to_thread(server.stdout.readline)).strip()
            assert url.startswith("http://"), url
            patient = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600))
            async with patient, kit.gateway(tmp_path, settings, timeouts=Timeouts(first_byte_s=600.0)) as gate:
                at(gate, url, 3)
                gate.session = patient
                token = gate.crew.agent()
                first = await gate.post(CHAT, ask(SYSTEM, "one", max_tokens=4, temperature=0), token)
                assert first.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
                found = await asyncio.gather(
                    *(gate.post(CHAT, ask(SYSTEM, turn, max_tokens=4, temperature=0), token) for turn in ("two", "three", "four"))
                )
                usages = [answer.json["usage"] for answer in found]
                cold = [usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
                assert max(cold) < 200, usages
                other = "Another crew answers here, in one short line and no more. " * 36
                found = await asyncio.gather(
                    *(gate.post(CHAT, ask(other, turn, max_tokens=4), token) for turn in ("six", "seven", "eight"))
                )
                usages = [answer.json["usage"] for answer in found]
                cold = [usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
                assert sum(count > 200 for count in cold) == 1, "the first; the second was computed alone, and is a hit of its own"
                said = await gate.post(MESSAGES, message(SYSTEM, "five", max_tokens=4, temperature=0), token)
                assert said.json["content"][0]["text"]
                assert said.json["usage"]["input_tokens"] < 200, said.json
        finally:
            server.kill()
