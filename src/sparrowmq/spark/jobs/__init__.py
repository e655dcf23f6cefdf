"""Jobs that people need: archive, drain, replay, dead letters."""
