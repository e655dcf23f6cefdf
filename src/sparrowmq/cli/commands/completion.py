"""`sparrowmq completion SHELL`: the script that lets a shell complete commands and names."""

import click
from click.shell_completion import ShellComplete, get_completion_class

_VARIABLE = "_SPARROWMQ_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, topics and groups. Names come from the cluster that the command
    line names, are kept for 30 s, and are left out when it does not answer within a second.

    \b
    Examples:
      source <(sparrowmq completion bash)           # in ~/.bashrc
      source <(sparrowmq completion zsh)            # in ~/.zshrc, after compinit
      sparrowmq completion fish > ~/.config/fish/completions/sparrowmq.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells above"
    script = kind(ctx.find_root().command, {}, "sparrowmq", _VARIABLE)
    # Not the subclass's source(): the one for bash runs a bash to ask for its version
    click.echo(ShellComplete.source(script))


def commands() -> list[click.Command]:
    """For the program."""
    return [completion]
