"""Rows of a DataFrame to records."""
