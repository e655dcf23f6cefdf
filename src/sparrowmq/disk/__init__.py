"""Files, through a seam that tests replace: opening, syncing, replacing, locking."""
