"""Bytes to values and back: codes, headers, frames, message records, filters. No I/O."""
