"""`sparrowmq` with a planted bug: sends are acknowledged before a slave has the message."""

from sparrowmq.cli.main import main
from tests.faults.replication_planted import acknowledge_before_the_slave_has_it

if __name__ == "__main__":
    acknowledge_before_the_slave_has_it(setattr)
    main()
