"""Which name servers a program uses, and how it says where it learned of them."""

import asyncio
import logging
import re
from pathlib import Path

import pytest

from sparrowmq.client.client import Client, core_of
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.errors import NoNameServer
from sparrowmq.cluster_address import contexts_file, find_name_servers, read_contexts
from sparrowmq.config_fields import ConfigError

OUR = "SPARROWMQ_"
OURS, CONTEXT, APACHES = "SPARROWMQ_NAME_SERVERS", "SPARROWMQ_CONTEXT", "NAMESRV_ADDR"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a file of two contexts."""
    path = tmp_path / "sparrowmq" / "contexts.toml"
    path.parent.mkdir()
    path.write_text(
        '[contexts.staging]\nname-servers = ["s:1"]\n'
        '[contexts.production]\nname-servers = ["p:1", "p:2"]\n'
    )
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("given", "environment", "addresses", "origin"),
    [
        (None, {}, ("127.0.0.1:9876",), "the default"),
        (None, {APACHES: "a:1;b:2"}, ("a:1", "b:2"), f"environment variable {APACHES}"),
        (None, {CONTEXT: "production", APACHES: "a:1"}, ("p:1", "p:2"), "context production"),
        (None, {OURS: "o:1, o:2", CONTEXT: "production"}, ("o:1", "o:2"), OURS),
        ("x:1;x:2", {OURS: "o:1", CONTEXT: "production"}, ("x:1", "x:2"), "the argument"),
        (["x:1"], {OURS: "o:1"}, ("x:1",), "the argument"),
        (None, {OURS: "", CONTEXT: "", APACHES: ""}, ("127.0.0.1:9876",), "the default"),
    ],
)
def test_the_first_address_given_wins(
    home: dict[str, str],
    given: str | list[str] | None,
    environment: dict[str, str],
    addresses: tuple[str, ...],
    origin: str,
) -> None:
    found = find_name_servers(given, environment={**home, **environment})
    assert found.addresses == addresses
    assert origin in found.origin


@pytest.mark.parametrize(
    ("given", "environment", "said"),
    [
        (None, {OUR + "NAMESERVERS": "o:1"}, [f"{OUR}NAMESERVERS .* you mean {OURS}?"]),
        (None, {OUR + "NAME_SERVER": "o:1"}, [f"{OUR}NAME_SERVER .* you mean {OURS}?"]),
        (None, {"SPARROW_NAME_SERVERS": "o:1"}, [f"SPARROW_NAME_SERVERS .* you mean {OURS}?"]),
        (None, {"sparrowmq_name_servers": "o:1"}, [f"sparrowmq_name_servers .* mean {OURS}?"]),
        (None, {OUR + "CONTEXTS": "prod"}, [f"{OUR}CONTEXTS .* you mean {CONTEXT}?"]),
        (None, {OUR + "CONFIG": "broker.toml", OUR + "NAME": "broker-a"}, []),
        (None, {OUR + "NAMESERVERS": "o:1", OURS: "p:1"}, []),
        ("x:1", {OUR + "NAMESERVERS": "o:1"}, []),
    ],
)
def test_a_mistyped_variable_is_logged_once_with_the_one_that_was_meant(
    given: str | None,
    environment: dict[str, str],
    said: list[str],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger(request.node.name)  # of this case, since once is for each logger
    for _ in range(2):
        find_name_servers(given, environment=environment, log=log)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(said)
    for line, text in zip(lines, said, strict=True):
        assert re.search(text, line)
        assert line.endswith("name servers are 127.0.0.1:9876, from the default")


@pytest.mark.parametrize(
    ("given", "environment", "said"),
    [
        (None, {CONTEXT: "prod"}, "'prod', which is not in .*; it has: production, staging"),
        (None, {CONTEXT: "prod", "XDG_CONFIG_HOME": "/nonexistent"}, "it has none"),
        (None, {OURS: " ; "}, f"{OURS} is ' ; ', which has no address"),
        ("", {OURS: "o:1"}, "the argument name_servers is '', which has no address"),
    ],
)
def test_a_client_never_uses_another_cluster_than_the_named_one(
    home: dict[str, str], given: str | None, environment: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        find_name_servers(given, environment={**home, **environment})


@pytest.mark.parametrize("text", ["[contexts", "contexts = 3", "[contexts.a]\nservers = 1"])
def test_a_file_that_holds_no_contexts_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"contexts\.toml"):
        read_contexts(path)


def test_contexts_lie_in_the_home_directory_without_xdg_config_home() -> None:
    assert contexts_file({"HOME": "/users/a"}) == Path("/users/a/.config/sparrowmq/contexts.toml")


def test_a_client_without_an_address_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(APACHES, "a:1")
    assert ClientConfig().name_servers == ("a:1",)
    monkeypatch.setenv(OURS, "o:1;o:2")
    config = ClientConfig()
    assert (config.name_servers, config.name_servers_from) == (
        ("o:1", "o:2"),
        f"environment variable {OURS}",
    )
    assert ClientConfig(name_servers=("x:1",)).name_servers == ("x:1",)


@pytest.mark.parametrize("given", [None, (), ""])
def test_a_client_without_an_address_does_not_fall_back_to_another_cluster(
    given: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OURS, "o:1")
    with pytest.raises(ConfigError, match="name_servers"):
        ClientConfig(name_servers=given)  # type: ignore[arg-type]


def test_the_error_of_a_cluster_that_does_not_answer_names_the_origin_of_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(APACHES, "127.0.0.1:1")

    async def ask() -> None:
        client = Client(ClientConfig())
        await client.start()
        try:
            await core_of(client).name_servers.route("orders")
        finally:
            await client.stop()

    with pytest.raises(NoNameServer, match=f"127.0.0.1:1, from environment variable {APACHES}"):
        asyncio.run(ask())
