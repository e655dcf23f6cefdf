"""Tests, one folder per package of `sparrowmq`; see CONTRIBUTING.md."""
