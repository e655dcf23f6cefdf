"""A console with a certificate: its address, and cookies that browsers send over TLS only."""

import re
import ssl
import subprocess
import sys
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode

from sparrowmq.console.users import UserRole, write_user
from tests.cli.servers import clean_environment
from tests.patience import PATIENCE_S
from tests.repo.tree import ROOT

TLS = ROOT / "tests" / "console" / "tls"
"""A certificate of 127.0.0.1 that signs itself, valid for a hundred years, and its key."""


def test_a_console_with_tls_names_its_https_address_and_has_secure_cookies(tmp_path: Path) -> None:
    write_user(tmp_path / "users.txt", "ada", UserRole.OPERATOR, "correct horse")
    flags = ["--users", "users.txt", "--tls-cert", str(TLS / "cert.pem")]
    flags += ["--tls-key", str(TLS / "key.pem"), "--port", "0", "-n", "127.0.0.1:1"]
    with subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", "console", *flags, "--state", "state"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"console https://127\.0\.0\.1:(\d+)/", line)
            assert found is not None, line
            cookies = log_in(int(found[1]))
        finally:
            process.terminate()
        _, logged = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, logged
    assert len(set(cookies)) == 2, "a new session at the login"
    for cookie in cookies:
        attributes = cookie.lower().split("; ")[1:]
        assert set(attributes) == {"secure", "httponly", "samesite=strict", "path=/"}


def log_in(port: int) -> list[str]:
    """The cookies before and after a login over TLS."""
    trusting = ssl.create_default_context(cafile=TLS / "cert.pem")
    connection = HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=trusting)
    connection.request("GET", "/login")
    with connection.getresponse() as page:
        assert page.status == 200
        before = page.headers["set-cookie"]
        token = re.findall(r'name="token" value="(\w+)"', page.read().decode())[0]
    headers = {
        "cookie": before.partition(";")[0],
        "origin": f"https://127.0.0.1:{port}",
        "content-type": "application/x-www-form-urlencoded",
    }
    form = urlencode({"token": token, "name": "ada", "password": "correct horse"})
    connection.request("POST", "/login", form, headers)
    with connection.getresponse() as done:
        assert (done.status, done.headers["location"]) == (303, "/")
        after = done.headers["set-cookie"]
    connection.close()
    return [before, after]
