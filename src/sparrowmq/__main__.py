"""The command `sparrowmq`, also as `python -m sparrowmq`."""

import signal


def main() -> None:
    """Import the program and run it."""
    # During the import, Ctrl-C could only be answered with a traceback: until it is done, Ctrl-C
    # ends this process like any other. If the signal is ignored (`nohup`, `&`), it stays ignored.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sparrowmq.cli.main import main as run

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
