"""`nameserver`, `broker`, `up` and `config show`: commands whose options are the settings."""

import ast
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import click

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.apache_conf import read_broker_conf
from sparrowmq.cli.settings import (
    Given,
    Setting,
    SettingError,
    build,
    check_known,
    read_toml,
    resolve,
    settings_of,
)
from sparrowmq.nameserver.config import NameServerConfig

DEFAULT_DATA = Path("sparrowmq-data")
SECTIONS = {"nameserver": "nameserver-", "broker": "", "store": "store-", "limit": "limit-"}


@cache
def nameserver_settings() -> list[Setting]:
    """The name server's, all beginning with `nameserver-`."""
    return settings_of(NameServerConfig, "nameserver-")


@cache
def broker_settings() -> list[Setting]:
    """The broker's."""
    return settings_of(BrokerConfig)


class SettingOption(click.Option):
    """An option made from a setting. Its help is the field's own text, read when it is needed."""

    def __init__(self, setting: Setting, names: list[str]) -> None:
        super().__init__([*names, setting.name.replace("-", "_")], metavar="VALUE")
        self.setting = setting

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Flag and text."""
        text = field_text(self.setting.owner, self.setting.field)
        default = self.setting.show(self.setting.default)
        return ", ".join(self.opts) + " VALUE", f"{text}  [default: {default}]".strip()


@cache
def _texts(owner: type) -> dict[str, str]:
    """The texts below a configuration class's fields."""
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if is_field and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return texts


def field_text(owner: type, field: str) -> str:
    """What a field means, in the words of its class."""
    return _texts(owner).get(field, "")


def options(settings: list[Setting], strip: str = "") -> list[click.Parameter]:
    """Options for settings; where all begin with `strip`, the short form works as well."""
    made: list[click.Parameter] = []
    for setting in settings:
        names = [f"--{setting.name}"]
        if strip and setting.name.startswith(strip):
            names.append(f"--{setting.name.removeprefix(strip)}")
        made.append(SettingOption(setting, names))
    return made


def common_options() -> list[click.Parameter]:
    """What every server command takes besides settings."""
    return [
        click.Option(
            ["--config", "config_file"],
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            envvar="SPARROWMQ_CONFIG",
            help="A TOML file, or Apache's broker.conf.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Logs as one JSON object a line."),
        click.Option(["--insecure"], is_flag=True, help="Allow addresses that others can reach."),
    ]


def read_file(path: Path | None) -> dict[str, Given]:
    """The settings in a file; its name tells which kind it is."""
    if path is None:
        return {}
    if path.suffix == ".toml":
        file = read_toml(path, SECTIONS)
        check_known(file, [*nameserver_settings(), *broker_settings()])
        return file
    return read_broker_conf(path, lambda text: click.echo(f"warning: {text}", err=True))


def given_settings(
    settings: list[Setting], values: Mapping[str, Any], path: Path | None
) -> dict[str, Given]:
    """What flags, environment and file say."""
    flags = {setting.name: values.get(setting.name.replace("-", "_")) for setting in settings}
    return resolve(settings, flags=flags, environment=os.environ, file=read_file(path))


def nameserver_config(values: Mapping[str, Any], path: Path | None) -> NameServerConfig:
    """The name server's configuration; its key-value file lies in the data directory."""
    settings = nameserver_settings()
    config: NameServerConfig = build(
        NameServerConfig, settings, given_settings(settings, values, path)
    )
    return config


def broker_config(
    values: Mapping[str, Any], path: Path | None, *, extra: Mapping[str, Given] | None = None
) -> BrokerConfig:
    """The broker's configuration. `extra` fills what nobody gave."""
    settings = broker_settings()
    given = {
        "data": Given(DEFAULT_DATA, "default"),
        **(extra or {}),
        **given_settings(settings, values, path),
    }
    config: BrokerConfig = build(BrokerConfig, settings, given)
    return replace(config, data_dir=config.data_dir.resolve())


def _start(as_json: bool) -> None:
    from sparrowmq.cli.logs import set_up_logs

    set_up_logs(as_json=as_json)


def _nameserver(config_file: Path | None, as_json: bool, insecure: bool, **values: Any) -> None:
    from sparrowmq.cli.serve import check_exposure, run, serve_nameserver

    config = nameserver_config(values, config_file)
    check_exposure([config.listen_host], insecure=insecure)
    _start(as_json)
    sys.exit(run(serve_nameserver(config)))


def _broker(
    config_file: Path | None, as_json: bool, insecure: bool, with_parent: bool, **values: Any
) -> None:
    from sparrowmq.cli.serve import check_exposure, run, serve_broker

    local = Given(("127.0.0.1:9876",), "default")
    config = broker_config(values, config_file, extra={"name-servers": local})
    check_exposure([config.listen_host], insecure=insecure)
    _start(as_json)
    sys.exit(run(serve_broker(config, with_parent=with_parent)))


def _up(
    brokers: int, config_file: Path | None, as_json: bool, insecure: bool, **values: Any
) -> None:
    from sparrowmq.cli.serve import check_exposure, run, serve_up
    from sparrowmq.cli.several_brokers import serve_several

    names = nameserver_config(values, config_file)
    first = broker_config(values, config_file)
    check_exposure([names.listen_host, first.listen_host], insecure=insecure)
    if names.kv_config_path is None:
        names = replace(names, kv_config_path=first.data_dir / "namesrv" / "kvConfig.json")
    _start(as_json)
    if brokers > 1:
        sys.exit(run(serve_several(names, first, brokers, insecure=insecure, as_json=as_json)))
    sys.exit(run(serve_up(names, lambda address: replace(first, name_servers=(address,)))))


def _config_show(server: str, config_file: Path | None, **values: Any) -> None:
    settings = nameserver_settings() if server == "nameserver" else broker_settings()
    given = given_settings(settings, values, config_file)
    config = (
        nameserver_config(values, config_file)
        if server == "nameserver"
        else broker_config(values, config_file)
    )
    width = max(len(setting.name) for setting in settings)
    for setting in settings:
        holder: Any = config
        for part in setting.path:
            holder = getattr(holder, part)
        value = setting.show(getattr(holder, setting.field))
        origin = given[setting.name].origin if setting.name in given else "default"
        click.echo(f"{setting.name:<{width}}  {value}  ({origin})")


class ServerCommand(click.Command):
    """Turns wrong settings into exit code 2 with one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SettingError as error:
            raise click.UsageError(str(error), ctx) from error


def server_commands() -> list[click.Command]:
    """The commands, ready to be added to the program."""
    show = click.Argument(
        ["server"], type=click.Choice(["broker", "nameserver"]), default="broker", required=False
    )
    config = click.Group("config", help="Look at settings.")
    config.add_command(
        ServerCommand(
            "show",
            callback=_config_show,
            params=[
                show,
                common_options()[0],
                *options(broker_settings()),
                *options(nameserver_settings()),
            ],
            help="Every setting, its value, and where it came from.",
        )
    )
    return [
        ServerCommand(
            "nameserver",
            callback=_nameserver,
            params=[*common_options(), *options(nameserver_settings(), strip="nameserver-")],
            help="Run a name server.",
        ),
        ServerCommand(
            "broker",
            callback=_broker,
            params=[
                click.Option(
                    ["--with-parent"],
                    is_flag=True,
                    help="Stop when standard input closes, as the parent's end closes it.",
                ),
                *common_options(),
                *options(broker_settings()),
            ],
            help="Run a broker.",
        ),
        ServerCommand(
            "up",
            callback=_up,
            params=[
                click.Option(
                    ["--brokers"],
                    type=click.IntRange(1, 64),
                    default=1,
                    help="Broker processes; one per core makes sense.",
                ),
                *common_options(),
                *options(broker_settings()),
                *options(nameserver_settings()),
            ],
            help="Run a name server and a broker on loopback with one data directory.",
        ),
        config,
    ]
