"""The addresses of name servers, as commands take them."""

import click
from click.core import ParameterSource

HELP = "host:port of the name servers, with commas between."
DEFAULT = "127.0.0.1:9876"
VARIABLE = "SPARROWMQ_NAME_SERVERS"


def checked_addresses(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """The text as it is. Raises BadParameter for what is no list of host:port."""
    from sparrowmq.client.config import parse_name_servers
    from sparrowmq.net.peers import split_address

    source = ctx.get_parameter_source(param.name or "")
    where = f" (environment variable {VARIABLE})" if source is ParameterSource.ENVIRONMENT else ""
    allowed = f"such as {DEFAULT}; several have commas between"
    addresses = parse_name_servers(text)
    if not addresses:
        raise click.BadParameter(f"{text!r}{where} has no address, {allowed}", ctx, param)
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise click.BadParameter(f"{error}{where}, {allowed}", ctx, param) from error
    return text
