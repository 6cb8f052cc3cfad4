"""A way between a client and a server on which answers can be lost."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Passes bytes on, until it is told to keep the server's answers back, or to hang up."""

    def __init__(self, to: str) -> None:
        self.to = to
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.open: list[socket.socket] = []
        self.passes_answers = threading.Event()
        self.passes_answers.set()
        self.lost = threading.Event()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                host, port = self.to.split(":")
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:
                    client.close()
                    continue
                self.open += [client, server]
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    arguments = (source, target, is_answer)
                    threading.Thread(target=self._pass, args=arguments, name="pass", daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and not self.passes_answers.is_set():
                    self.lost.set()
                    continue
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """Breaks every connection; those that come later are passed on whole."""
        self.passes_answers.set()
        broken, self.open = self.open, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self.listener.close()
        self.hang_up()
