"""Jobs on Spark: archive, drain, replay, dead letters."""
