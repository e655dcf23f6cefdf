"""A broker with a planted bug: it sometimes acknowledges a message that it never stores."""

from sparrowmq.cli.main import main
from tests.faults.lying_store import plant_lying_store

if __name__ == "__main__":
    plant_lying_store(setattr, every=500)
    main()
