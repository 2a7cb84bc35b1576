"""Our own answers: what the clients' own libraries make of them."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic
import openai
import pytest

from supervisor.gateway.wire.errors import error
from supervisor.kernel.gateway_settings import Api


class Answering(HTTPServer):
    """Answers every request with `answer`, and counts them."""

    answer: tuple[int, dict[str, str], bytes]
    count = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Answering)
        self.rfile.read(int(self.headers["content-length"]))
        self.server.count += 1
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, text in {**headers, "content-length": str(len(body)), "connection": "close"}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (402, anthropic.APIStatusError),
        (403, anthropic.PermissionDeniedError),
        (404, anthropic.NotFoundError),
        (413, anthropic.RequestTooLargeError),
        (429, anthropic.RateLimitError),
        (503, anthropic.ServiceUnavailableError),
        (504, anthropic.DeadlineExceededError),
    ],
)
def test_the_anthropic_library_reads_them(server: Answering, status: int, expected: type[anthropic.APIStatusError]) -> None:
    server.answer = (status, *error(Api.ANTHROPIC, status, "no room."))
    client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
    with pytest.raises(expected) as caught, client:
        client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}])
    assert caught.value.status_code == status
    assert isinstance(caught.value.body, dict) and caught.value.body["type"] == "error"
    assert "nightcrew gateway: no room." in caught.value.message


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        (400, openai.BadRequestError, None),
        (401, openai.AuthenticationError, "invalid_api_key"),
        (402, openai.APIStatusError, "insufficient_quota"),
        (403, openai.PermissionDeniedError, None),
        (404, openai.NotFoundError, None),
        (429, openai.RateLimitError, "rate_limit_exceeded"),
        (503, openai.InternalServerError, None),
    ],
)
def test_the_openai_library_reads_them(server: Answering, status: int, expected: type[openai.APIStatusError], code: str | None) -> None:
    server.answer = (status, *error(Api.OPENAI, status, "no room."))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="k", max_retries=0)
    with pytest.raises(expected) as caught, client:
        client.responses.create(model="m", input="x")
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert "nightcrew gateway: no room." in caught.value.message


def test_where_it_is_of_no_use_the_libraries_do_not_try_again(server: Answering) -> None:
    server.answer = (503, *error(Api.ANTHROPIC, 503, "the key was refused."))
    client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=5)
    with pytest.raises(anthropic.ServiceUnavailableError), client:
        client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}])
    assert server.count == 1


@pytest.mark.parametrize("api", [None, *Api])
@pytest.mark.parametrize(("asked", "said"), [(0, "1"), (0.2, "1"), (7, "7"), (60, "60"), (61, "60"), (1e9, "60")])
def test_retry_after_stays_within_a_minute(api: Api | None, asked: float, said: str) -> None:
    headers, body = error(api, 429, "wait.", asked)
    assert headers["retry-after"] == said and "x-should-retry" not in headers
    assert f"try again in {said}s" in body.decode()


@pytest.mark.parametrize(
    ("status", "is_useless"), [(401, True), (402, True), (403, True), (503, True), (400, False), (429, False), (502, False), (504, False)]
)
def test_a_client_is_told_not_to_try_again_only_where_that_helps(status: int, is_useless: bool) -> None:
    for api in Api:
        assert (error(api, status, "no.")[0].get("x-should-retry") == "false") is is_useless
        assert "x-should-retry" not in error(api, status, "no.", 5)[0]


def test_geminis_shape() -> None:
    _, body = error(Api.GEMINI, 429, "wait.", 9)
    said = json.loads(body)["error"]
    assert (said["code"], said["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert said["details"] == [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9s"}]
    assert json.loads(error(Api.GEMINI, 400, "no.")[1])["error"]["status"] == "INVALID_ARGUMENT"
    assert json.loads(error(Api.GEMINI, 502, "no.")[1])["error"]["status"] == "INTERNAL"


def test_any_words_are_valid_json() -> None:
    for api in (None, *Api):
        assert "nightcrew gateway" in str(json.loads(error(api, 404, 'a "quote"\n\ud800')[1]))
