"""The command `sparrowmq`, also as `python -m sparrowmq`."""

import signal


def main() -> None:
    """Import the program and run it."""
    # While it is being imported nobody could answer a Ctrl-C with more than a traceback: until then
    # it ends this process as it ends any other. Whoever ignores it (`nohup`, `&`) goes on doing so.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sparrowmq.cli.main import main as run

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
