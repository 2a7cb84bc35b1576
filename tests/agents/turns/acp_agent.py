"""A small agent that speaks the Agent Client Protocol. Each line of a prompt is a verb with its words:

say WORDS · tool KIND WORDS (a call that succeeds) · ask KIND (a call that needs permission) · wait (until it is cancelled) ·
stop REASON · fail MESSAGE · die STATUS · file NAME (until it is there) · touch NAME · cost AMOUNT · odd (what no client expects)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

SESSION = "session-1"
ALL = ("allow_always", "allow_once", "reject_once", "reject_always")


class Peer:
    """The client at the other end of stdin and stdout."""

    def __init__(self) -> None:
        self.number = 0
        self.cancelled = False

    def send(self, **shape: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **shape}), flush=True)

    def update(self, **update: Any) -> None:
        self.send(method="session/update", params={"sessionId": SESSION, "update": update})

    def heard(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        shape: dict[str, Any] = json.loads(line)
        self.cancelled |= shape.get("method") == "session/cancel"
        return shape

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        self.send(id=f"ask-{self.number}", method=method, params={"sessionId": SESSION, **params})
        while (answer := self.heard()).get("id") != f"ask-{self.number}":
            pass
        return answer


def permission(peer: Peer, kind: str, sorts: tuple[str, ...] = ALL) -> None:
    options = [{"optionId": f"the-{sort}", "name": sort, "kind": sort} for sort in sorts]
    call = {"toolCallId": f"call-{kind}", "title": f"to {kind}", "kind": kind, "rawInput": {"command": f"{kind} it"}}
    answer = peer.ask("session/request_permission", toolCall=call, options=options)["result"]["outcome"]
    granted = answer.get("optionId") == "the-allow_once"
    text = json.dumps(answer)
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    peer.update(sessionUpdate="tool_call_update", toolCallId=f"call-{kind}", status="completed" if granted else "failed", content=content)
    peer.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def odd(peer: Peer) -> None:
    print("not JSON at all", flush=True)
    print(json.dumps([1, 2]), flush=True)
    peer.send(method="session/update", params={"sessionId": "another", "update": {"sessionUpdate": "agent_message_chunk"}})
    peer.send(method="session/update", params={"sessionId": SESSION, "update": {"sessionUpdate": "from_the_future", "x": [None]}})
    peer.send(method="session/update", params="nothing")
    said = peer.ask("fs/read_text_file", path="/etc/passwd")
    peer.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": str(said["error"]["code"])})


def turn(peer: Peer, prompt: str) -> dict[str, Any]:
    """What the answer to the prompt holds."""
    peer.cancelled = False
    for line in prompt.splitlines():
        verb, _, words = line.partition(" ")
        match verb:
            case "say":
                peer.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": words})
            case "tool":
                kind, _, title = words.partition(" ")
                peer.update(sessionUpdate="tool_call", toolCallId=title, title=title, kind=kind, status="pending")
                peer.update(sessionUpdate="tool_call_update", toolCallId=title, status="completed", content=[])
            case "ask":
                permission(peer, words)
            case "ask-for-ever":
                permission(peer, words, ("allow_always",))
            case "wait":
                while not peer.cancelled:
                    peer.heard()
                return {"result": {"stopReason": "cancelled"}}
            case "file":
                while not Path(words).exists():
                    time.sleep(0.01)
            case "touch":
                Path(words).touch()
            case "cost":
                peer.update(sessionUpdate="usage_update", used=1, size=2, cost={"amount": float(words), "currency": "USD"})
            case "odd":
                odd(peer)
            case "stop":
                return {"result": {"stopReason": words}}
            case "fail":
                return {"error": {"code": -32603, "message": words}}
            case "die":
                sys.exit(int(words))
    return {"result": {"stopReason": "end_turn"}}


def main() -> None:
    peer = Peer()
    model = "small"
    print("a greeting before the protocol begins", flush=True)
    while True:
        shape = peer.heard()
        params = shape.get("params", {})
        match shape.get("method"):
            case "initialize":
                offered = params["clientCapabilities"]
                assert offered == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
                version = int(sys.argv[1]) if sys.argv[1:] else params["protocolVersion"]
                about = {
                    "protocolVersion": version,
                    "agentCapabilities": {"loadSession": True},
                    "agentInfo": {"name": "small", "version": "1"},
                }
                answer: dict[str, Any] = {"result": about}
            case "session/new" | "session/load" as method:
                assert Path(params["cwd"]) == Path.cwd()
                assert params["mcpServers"] == []
                if method == "session/load":
                    peer.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "said long ago"})
                options = [{"id": "m", "name": "Model", "category": "model", "type": "select", "currentValue": model, "options": []}]
                answer = {"result": {"sessionId": SESSION, "configOptions": options}}
            case "session/set_config_option":
                model = params["value"]
                answer = {"result": {"configOptions": []}}
            case "session/prompt":
                answer = turn(peer, f"say [{model}]\n" + params["prompt"][0]["text"])
            case _:
                continue
        peer.send(id=shape["id"], **answer)


if __name__ == "__main__":
    main()
