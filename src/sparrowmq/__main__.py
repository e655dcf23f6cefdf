"""`python -m sparrowmq`."""

from sparrowmq.cli.main import main

main()
