"""`sparrowmq` with a planted bug: a kill takes the progress that was answered last."""

from sparrowmq.cli.main import main
from tests.faults.replication_planted import forget_the_last_commits

if __name__ == "__main__":
    forget_the_last_commits(setattr)
    main()
