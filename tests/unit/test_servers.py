"""Requests to a server: what comes back, what is refused, and where a key does not go."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.servers import NoAnswer, Refusal, ask, checked_url


@pytest.fixture
def server():
    """A server that answers by path: (address, what it was asked: method, path, key, body)."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            size = int(self.headers.get("Content-Length") or 0)
            seen.append((self.command, self.path, self.headers.get("Authorization"), self.rfile.read(size)))
            name = self.path.strip("/")
            self.send_response(int(name) if name.isdigit() else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"x" * 5000 if name.isdigit() else json.dumps({"path": name, "filler": "y" * 100}).encode())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", seen
    http.shutdown()
    http.server_close()


HEADERS = {"Authorization": "Bearer secret"}


def test_a_request_with_a_body_is_a_post_and_one_without_a_get(server):
    url, seen = server
    assert ask(url + "/a", headers=HEADERS, timeout_s=5)["path"] == "a"
    assert ask(url + "/b", b"content", headers=HEADERS, timeout_s=5)["path"] == "b"
    assert seen == [("GET", "/a", "Bearer secret", b""), ("POST", "/b", "Bearer secret", b"content")]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_key_follows_no_redirect(server, status):
    url, seen = server
    with pytest.raises(Refusal) as refused:
        ask(f"{url}/{status}", headers=HEADERS, timeout_s=5)
    assert refused.value.status == status
    assert [path for _, path, _, _ in seen] == [f"/{status}"]


@pytest.mark.parametrize(("status", "again"), [(400, False), (401, False), (404, False), (408, True), (429, True), (503, True)])
def test_a_refusal_says_whether_to_try_again_and_the_beginning_of_why(server, status, again):
    with pytest.raises(Refusal) as refused:
        ask(f"{server[0]}/{status}", headers={}, timeout_s=5)
    assert refused.value.worth_another_attempt == again
    assert refused.value.detail == "x" * 2000


def test_a_reply_that_is_too_large_is_not_read_to_its_end(server):
    with pytest.raises(NoAnswer, match="more than 50 bytes"):
        ask(server[0] + "/a", headers={}, timeout_s=5, most_bytes=50)


def test_a_server_that_is_not_there_is_no_answer_and_shows_no_key():
    with pytest.raises(NoAnswer, match="Connect") as error:
        ask("http://127.0.0.1:9", headers=HEADERS, timeout_s=5)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:8000", "http://", "http://a b", "ftp://host", None, 5])
def test_what_is_no_address_of_a_web_server_is_refused(url):
    with pytest.raises(InvalidInput, match=r"--url: expected an address such as http://x\."):
        checked_url(url, "--url", "http://x")
