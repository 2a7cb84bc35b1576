"""A model of a few thousand random weights that llama.cpp loads in no time: it says nonsense, and says it fast."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

Value = int | float | str | list[str] | list[float] | list[int]
_WIDTH, _HEADS, _INNER, _CONTEXT = 64, 2, 64, 4096
_U32, _I32, _F32, _TEXT, _LIST = 4, 5, 6, 8, 9
_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
"""A chat template that takes tools."""


def write(file: Path, *, template: str = _TOOLS) -> Path:
    """Write the model. `template`: its chat template; empty: none, so that llama.cpp takes its own, without tools."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *(f"\u2581{word}" for word in ("a", "the", "cat"))]
    types = [2, 3, 3, *[6] * 256, *[1] * 3]
    head: dict[str, Value] = {
        "general.architecture": "llama",
        "llama.context_length": _CONTEXT,
        "llama.embedding_length": _WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": _INNER,
        "llama.attention.head_count": _HEADS,
        "llama.rope.dimension_count": _WIDTH // _HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(number) for number in range(len(tokens))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **({"tokenizer.chat_template": template} if template else {}),
    }
    square, up = [_WIDTH, _WIDTH], [_WIDTH, _INNER]
    block = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square, "ffn_gate": up, "ffn_up": up}
    shapes = {
        "token_embd": [_WIDTH, len(tokens)],
        "output": [_WIDTH, len(tokens)],
        "output_norm": [_WIDTH],
        **{f"blk.0.{name}": shape for name, shape in {**block, "ffn_down": up[::-1], "attn_norm": [_WIDTH], "ffn_norm": [_WIDTH]}.items()},
    }
    file.write_bytes(_gguf(head, {f"{name}.weight": shape for name, shape in shapes.items()}))
    return file


def _gguf(head: Mapping[str, Value], shapes: Mapping[str, list[int]]) -> bytes:
    """Version 3 of the format: head, values, names of tensors, and their data on borders of 32 bytes."""
    draw = random.Random(1)
    out, data = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(head))), bytearray()
    for name, value in head.items():
        out += _text(name) + _value(value)
    for name, shape in shapes.items():
        out += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        numbers = (1.0,) * count if len(shape) == 1 else (draw.uniform(-0.5, 0.5) for _ in range(count))
        data += struct.pack(f"<{count}f", *numbers)
        data += bytes(-len(data) % 32)
    return bytes(out + bytes(-len(out) % 32) + data)


def _text(text: str) -> bytes:
    said = text.encode()
    return struct.pack("<Q", len(said)) + said


def _value(value: Value) -> bytes:
    if isinstance(value, list):
        kind, parts = _list(value)
        return struct.pack("<IIQ", _LIST, kind, len(value)) + b"".join(parts)
    if isinstance(value, str):
        return struct.pack("<I", _TEXT) + _text(value)
    return struct.pack("<If", _F32, value) if isinstance(value, float) else struct.pack("<II", _U32, value)


def _list(value: list[str] | list[float] | list[int]) -> tuple[int, Iterable[bytes]]:
    if isinstance(value[0], str):
        return _TEXT, [_text(str(one)) for one in value]
    if isinstance(value[0], float):
        return _F32, [struct.pack("<f", one) for one in value]
    return _I32, [struct.pack("<i", one) for one in value]
