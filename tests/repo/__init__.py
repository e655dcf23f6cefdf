"""Tests about the repository itself: its documents, rules, tools and packages."""
