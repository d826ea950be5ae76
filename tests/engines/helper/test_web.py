"""The helper on HTTP and HTTPS: one path for messages, errors without data, a line with retries."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from oracles.helper_fleet import INPUT, HelperFleet, constants
from skellam import SystemEntropy
from skellam.engines.helper import HelperService, web
from skellam.engines.leader import HttpsLine
from skellam.errors import (
    DomainError,
    HelperUnreachableError,
    ProtocolError,
    TamperError,
    ThresholdError,
)


@pytest.fixture
def fleet(tmp_path):
    return HelperFleet(tmp_path)


@pytest.fixture
def service(fleet):
    with HelperService(fleet.config, entropy=SystemEntropy()) as found:
        yield found


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def served(app, **options):
    """Serve ``app`` in a thread of its own until the block ends; yield the port."""
    port = options.pop("port", None) or free_port()
    config = uvicorn.Config(app, port=port, log_level="error", ws="none", lifespan="off", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield port
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def client(service):
    with served(web.app(service)) as port, httpx.Client(trust_env=False) as found:
        found.base_url = f"http://127.0.0.1:{port}"
        yield found


def test_messages_go_in_and_replies_come_out_as_bytes(fleet, service, client):

    def line(message):
        reply = client.post(web.PATH, content=message)
        assert reply.status_code == 200
        assert reply.headers["content-type"] == web.MEDIA_TYPE
        return reply.content

    release = fleet.lead(line).round(0, INPUT, fleet.collect())
    assert release.participants.tolist() == [10, 11, 12, 13]
    assert client.get("/v1/health").json() == {"helper": service.public.hex()}


def test_a_refusal_says_why_and_holds_no_data(client):
    reply = client.post(web.PATH, content=b"\x01A" + b"secret bytes" * 20)
    assert reply.status_code == 422
    assert reply.json()["error"] == "MessageError"
    assert "secret" not in reply.text
    assert client.get(web.PATH).status_code == 405
    assert client.get("/elsewhere").status_code == 404


def test_a_message_longer_than_any_that_can_be_meant_is_cut_off(service, client):
    reply = client.post(web.PATH, content=bytes(service.max_request + 1))
    assert reply.status_code == 413


def test_what_fails_in_the_helpers_own_files_stays_in_its_log(
    fleet, service, client, monkeypatch, caplog
):
    proposals = []

    def keep(message):
        proposals.append(message)
        raise ProtocolError("not now")

    with pytest.raises(ProtocolError, match="not now"):
        fleet.lead(keep)
    monkeypatch.setattr(service, "_runs", fleet.folder / "no" / "such" / "folder")
    reply = client.post(web.PATH, content=proposals[0])
    assert reply.status_code == 500
    assert reply.json()["text"] == "the helper cannot answer; its log says why"
    assert "such" in caplog.text


def test_over_tls_a_leader_reaches_the_helper_whose_certificate_it_knows(fleet, service):
    authority = fleet.with_certificate()
    files = {"ssl_certfile": str(authority), "ssl_keyfile": str(authority.with_suffix(".key"))}
    with served(web.app(service), **files) as port:
        url = f"https://127.0.0.1:{port}"
        release = fleet.lead(HttpsLine(url, authority)).round(0, INPUT, fleet.collect())
        assert release.participants.tolist() == [10, 11, 12, 13]
        with pytest.raises(HelperUnreachableError, match="certificate"):
            HttpsLine(url, timeout=2)(b"")
    with pytest.raises(HelperUnreachableError, match="cannot be reached"):
        HttpsLine(url, authority, timeout=2)(b"")


def test_a_line_sends_the_same_bytes_again_until_the_helper_is_back(fleet, service):
    port = free_port()
    line = HttpsLine(f"http://127.0.0.1:{port}", timeout=20)
    found = []
    thread = threading.Thread(target=lambda: found.append(fleet.lead(line)))
    thread.start()
    time.sleep(0.3)  # the helper is away
    with served(web.app(service), port=port):
        thread.join(20)
    assert found[0].next_round == 0


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (422, {"error": "TamperError", "text": "a lie"}, TamperError),
        (422, {"error": "ThresholdError", "text": "too few"}, ThresholdError),
        (422, {"error": "BudgetError", "text": "spent"}, ProtocolError),
        (500, {"error": "os", "text": "x"}, ProtocolError),
        (500, ["no", "record"], ProtocolError),
    ],
)
def test_what_the_helper_refuses_is_raised_at_the_leader(status, content, kind):
    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body = json.dumps(content).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    with served(app) as port, pytest.raises(kind, match="the helper refuses"):
        HttpsLine(f"http://127.0.0.1:{port}", timeout=5)(b"message")


def test_without_a_certificate_only_this_machine_is_served(fleet):
    config = fleet.without_tls().config
    with (
        HelperService(config, entropy=SystemEntropy()) as service,
        pytest.raises(DomainError, match=r"\[tls\]"),
    ):
        web.serve(config, service, host="0.0.0.0", port=1)


def test_the_program_serves_over_tls_and_goes_on_after_a_kill(fleet):
    """The real command in a process of its own; it imports neither torch nor flwr."""
    authority, port = fleet.with_certificate(), free_port()
    check = (
        "import sys; from skellam.cli import app\n"
        "try: app()\n"
        "finally: assert not {'torch', 'flwr'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", check, "helper", "serve", str(fleet.toml.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    @contextmanager
    def program():
        process = subprocess.Popen([*command, "--port", str(port)], env=environment)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)

    line = HttpsLine(f"https://127.0.0.1:{port}", authority, timeout=60)
    agreed = constants()
    with program() as process:
        leader = fleet.lead(line, agreed)
        leader.round(0, INPUT, fleet.collect())
        process.kill()
        process.wait(20)
    with program() as process:
        release = leader.round(1, INPUT, fleet.collect())
        assert release.round_ == 1
        process.terminate()
        assert process.wait(20) in (0, -15)
