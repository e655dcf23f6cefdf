"""What holds for every test: hypothesis prints how to repeat a failure and never judges by time."""

from hypothesis import settings

# The machine may be busy; a property that is slow is not wrong.
settings.register_profile("sparrowmq", deadline=None, print_blob=True)
settings.load_profile("sparrowmq")
