"""A PostgreSQL server on loopback, for as long as a test needs it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

USER = "postgres"


@contextmanager
def server() -> Iterator[str]:
    """Yield the address of a new server; skip the test where none is installed."""
    programs, how = programs_or_skip(), as_user()
    folder = Path(tempfile.mkdtemp(prefix="linnet-postgres-"))
    try:
        if how:
            shutil.chown(folder, USER)
        made = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", USER, "-A", "trust", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **how)
        port = free_port()
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off"}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port), *words]
        with (
            open(folder / "log", "wb") as log,
            subprocess.Popen(command, stderr=log, cwd=folder, **how) as process,
        ):
            try:
                wait_for(process, port, folder / "log")
                yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
            finally:
                # A fast shutdown: SIGTERM waits for clients.
                process.send_signal(signal.SIGINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def programs_or_skip() -> Path:
    pytest.importorskip("psycopg", reason="needs psycopg, of the extra postgres")
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *filter(None, [shutil.which("initdb")])]
    if not found:
        pytest.skip("no server of PostgreSQL is installed (Debian: apt-get install postgresql)")
    return Path(found[0]).parent


def as_user() -> dict[str, Any]:
    """How a process is started: a server refuses to be root's."""
    return {"user": USER, "group": USER} if os.getuid() == 0 else {}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(process: Any, port: int, log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(log.read_text())
