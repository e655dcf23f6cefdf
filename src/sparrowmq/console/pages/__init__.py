"""One module for each area of the console."""
