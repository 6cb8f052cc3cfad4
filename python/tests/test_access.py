"""Servers that speak TLS, and addresses that lead elsewhere."""

from __future__ import annotations

import http.server
import subprocess
import threading

import pytest
from conftest import Server

import truegauge as tg


def sign(folder, name: str) -> None:
    """A certificate for 127.0.0.1 that is its own authority."""
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", *options, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    # A certificate of an authority would not be taken for a server's.
    command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    command += ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
    subprocess.run(command, check=True, capture_output=True)


class SecureServer(Server):
    """One that shows a certificate and asks for the token `secret`."""

    def __init__(self, binary, folder):
        super().__init__(binary, folder)
        sign(folder, "server")
        certificate = {"CERT": folder / "server.pem", "KEY": folder / "server.key"}
        self.environment |= {f"TRUEGAUGE_TLS_{name}": str(path) for name, path in certificate.items()}
        self.environment["TRUEGAUGE_TOKEN"] = "secret"

    def start(self) -> None:
        super().start()
        self.url = self.url.replace("http://", "https://")

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(f"the server ended: {(self.folder / 'server.log').read_text()[-2000:]}")
        return "listening" in (self.folder / "server.log").read_text()


def test_a_run_is_sent_and_read_over_tls(binary, tmp_path, monkeypatch):
    server = SecureServer(binary, tmp_path)
    server.start()
    monkeypatch.setenv("TRUEGAUGE_TOKEN", "secret")
    monkeypatch.setenv("TRUEGAUGE_CA_FILE", str(tmp_path / "server.pem"))
    for name, value in server.environment_of_client().items():
        monkeypatch.setenv(name, value)
    try:
        with tg.init(project_name="p", run_name="r"):
            tg.log("loss", 0.5, step=1)
            assert tg.flush().where == "server"
        (run,) = tg.runs()
        assert run["run"] == "r"
        assert tg.query("vector(1)").series[0].values == [1.0]
        sign(tmp_path, "stranger")
        monkeypatch.setenv("TRUEGAUGE_CA_FILE", str(tmp_path / "stranger.pem"))
        with pytest.raises(tg.TruegaugeError, match="certificate"):
            tg.query("vector(1)")
        monkeypatch.setenv("TRUEGAUGE_CA_FILE", "/nowhere.pem")
        with pytest.raises(tg.TruegaugeError):
            tg.query("vector(1)")
    finally:
        server.kill()


def test_a_redirect_does_not_take_the_token_along():
    asked = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("authorization")))
            self.send_response(307)
            self.send_header("location", f"http://localhost:{self.server.server_port}/stolen")
            self.end_headers()

        def log_message(self, *_):
            pass

    peer = http.server.HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=peer.serve_forever, name="peer", daemon=True).start()
    try:
        with pytest.raises(tg.TruegaugeError, match="307"):
            tg.query("up", url=f"http://127.0.0.1:{peer.server_port}", token="secret")
    finally:
        peer.shutdown()
        peer.server_close()
    assert [(path.split("?")[0], token) for path, token in asked] == [("/api/v1/query", "Bearer secret")]
