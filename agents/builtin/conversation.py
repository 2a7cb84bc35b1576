"""The messages of one conversation, as the API takes them: breakpoints of its prompt cache, and what is left out when they grow. Pure.

After the first message answers of the model and what it is told about them alternate. Messages are never changed in place once a request
had them, but for `shrink`: the provider's cache knows the beginning of the conversation by its bytes.
"""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]
Block = dict[str, Any]

CACHED: Block = {"type": "ephemeral"}
FULL, SHRUNK = 0.8, 0.5
"""Parts of the room that messages may take before some are shortened, and what is aimed at then: seldom, since each time ends the cache."""
KEPT = 400
"""Characters that stay of a tool's result that is shortened."""
BYTES_PER_TOKEN = 3.0
"""Until an answer says how many tokens its request had; on the careful side."""
_FORGOTTEN = "[nightcrew] The older part of this conversation was left out here, because it had grown too long."


class Conversation:
    """`room` is how many tokens a request's input may have."""

    def __init__(self, room: int) -> None:
        self.messages: list[Message] = []
        self._sizes: list[int] = []
        self._room = float(room)
        self._bytes_per_token = BYTES_PER_TOKEN

    def add(self, role: str, content: list[Block]) -> Message:
        """One more message; two of the same role in a row become one."""
        if self.messages and self.messages[-1]["role"] == role:
            content = [*self.messages.pop()["content"], *content]
            self._sizes.pop()
        self.messages.append({"role": role, "content": content})
        self._sizes.append(_size(self.messages[-1]))
        return self.messages[-1]

    def unanswered(self) -> list[Block]:
        """The tool calls of the newest message that have no result yet."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            return []
        return [block for block in self.messages[-1]["content"] if block["type"] == "tool_use"]

    def learn(self, input_tokens: int) -> None:
        """The newest request had so many tokens of input."""
        if input_tokens > 1000:  # of small ones the system prompt is most
            self._bytes_per_token = max(1.0, sum(self._sizes) / input_tokens)

    def fit(self) -> int:
        """Shorten what is old when the messages take more than FULL of the room. Returns how many bytes that saved."""
        return self._shrink_to(SHRUNK) if self._tokens() > FULL * self._room else 0

    def shrink(self) -> int:
        """The model's server says that they are too long: the room is what they take now, less a quarter, from now on. Returns the bytes
        saved; 0 when nothing is left to shorten."""
        self._room = min(self._room, self._tokens() * 0.75)
        return self._shrink_to(FULL)

    def for_request(self) -> list[Message]:
        """The messages with a breakpoint at the end, and one where the request before had its own."""
        marked = [place for place, message in enumerate(self.messages) if message["role"] == "user"][-2:]
        return [_marked(message) if place in marked else message for place, message in enumerate(self.messages)]

    def _tokens(self) -> float:
        return sum(self._sizes) / self._bytes_per_token

    def _shrink_to(self, part: float) -> int:
        before, aim = sum(self._sizes), part * self._room
        for place in range(1, len(self.messages) - 2):
            if self._tokens() <= aim:
                break
            self._replace(place, _shortened(self.messages[place]))
        while self._tokens() > aim and len(self.messages) > 4:
            del self.messages[1:3], self._sizes[1:3]
            first = self.messages[0]["content"]
            if first[-1].get("text") != _FORGOTTEN:
                self._replace(0, {"role": "user", "content": [*first, {"type": "text", "text": _FORGOTTEN}]})
        for place in range(1, len(self.messages)):
            if self._tokens() <= aim:
                break
            self._replace(place, _shortened(self.messages[place]))
        return before - sum(self._sizes)

    def _replace(self, place: int, message: Message) -> None:
        self.messages[place] = message
        self._sizes[place] = _size(message)


def _shortened(message: Message) -> Message:
    return {**message, "content": [_short(block) for block in message["content"]]}


def _short(block: Block) -> Block:
    text = block.get("content")
    if block["type"] != "tool_result" or not isinstance(text, str) or len(text) <= 2 * KEPT:
        return block
    return {**block, "content": f"{text[:KEPT]}\n[nightcrew: {len(text) - KEPT} characters of this old result were left out]"}


def _marked(message: Message) -> Message:
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, "cache_control": CACHED}]}


def _size(message: Message) -> int:
    return len(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))
