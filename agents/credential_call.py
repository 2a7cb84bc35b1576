"""One request that shows whether a provider takes the gateway's credential, and costs nothing.

    python -m agents.credential_call API MODEL [--known]

A look before a night runs it as a task, with an attempt's token, so that it goes the way of the agents. Prints one JSON line:
`api`, `status` (null when nothing answered), `ms`, `listed` (whether MODEL is among the models that were listed; null: none were); on
stderr why it failed. Exit 0 when the credential was taken; with --known a provider that says it has no such model fails too.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

WAIT_S = 60.0
TAKEN = frozenset({200, 400, 404})
"""Statuses of a provider that has taken the credential."""
LIST_MAX = 2**20
"""Bytes of a list of models."""
_TEXT = "Say yes."


def request(api: str, model: str, environ: Mapping[str, str]) -> urllib.request.Request:
    """Counting tokens, or the list of models; neither is charged by any provider. Raises KeyError without a gateway for that API."""
    match api:
        case "anthropic":
            body = {"model": model, "messages": [{"role": "user", "content": _TEXT}]}
            headers = {"authorization": f"Bearer {environ['ANTHROPIC_AUTH_TOKEN']}", "anthropic-version": "2023-06-01"}
            return _post(f"{environ['ANTHROPIC_BASE_URL']}/v1/messages/count_tokens", body, headers)
        case "gemini":
            body = {"contents": [{"parts": [{"text": _TEXT}]}]}
            return _post(
                f"{environ['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/{model}:countTokens",
                body,
                {"x-goog-api-key": environ["GEMINI_API_KEY"]},
            )
        case _:
            base = environ["OPENAI_BASE_URL"].removesuffix("/v1")
            return urllib.request.Request(f"{base}/models", headers={"authorization": f"Bearer {environ['OPENAI_API_KEY']}"})  # noqa: S310 - the gateway\'s address


def _post(url: str, body: object, headers: Mapping[str, str]) -> urllib.request.Request:
    return urllib.request.Request(url, json.dumps(body).encode(), {**headers, "content-type": "application/json"})  # noqa: S310 - the gateway\'s address


def ask(what: urllib.request.Request) -> tuple[int | None, str]:
    """The status of the answer and its text; without an answer why there is none."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(what, timeout=WAIT_S) as answer:
            return int(answer.status), answer.read(LIST_MAX).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(4096).decode("utf-8", "replace")
    except OSError as error:
        return None, str(error)


def _message(said: str) -> str:
    """What an error says, as all three APIs have it; else all that was said."""
    try:
        return str(json.loads(said)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return said


def _listed(said: str, model: str) -> bool | None:
    try:
        names = [one["id"] for one in json.loads(said)["data"]]
    except (ValueError, KeyError, TypeError):
        return None
    return model in names if names and model else None


def main() -> int:
    """Returns the exit code."""
    api, model = sys.argv[1:3]
    began = time.monotonic()
    try:
        status, said = ask(request(api, model, os.environ))
    except KeyError as error:
        status, said = None, f"no gateway for it: {error.args[0]} is not set"
    missing = status == 404 and "--known" in sys.argv[3:] and model in _message(said)
    taken = status in TAKEN and not missing
    listed = _listed(said, model) if api == "openai" and status == 200 else None
    print(json.dumps({"api": api, "status": status, "ms": round(1000 * (time.monotonic() - began)), "listed": listed}))
    if not taken:
        print(f"{status or 'no answer'}: {_message(said)}", file=sys.stderr)
    return 0 if taken else 1


if __name__ == "__main__":
    sys.exit(main())
