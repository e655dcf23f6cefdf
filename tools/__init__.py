"""The scripts behind `./dev`; those that run before there is an environment use only the stdlib."""
