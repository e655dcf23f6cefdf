"""One module per group of commands; each offers `commands()`."""
