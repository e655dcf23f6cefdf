"""Finds the browser that tests of the console drive: Debian's chromium, or one like it.

A small separate file: `./dev` uses it before anything is installed, the tests afterwards.
"""

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "apt-get install --no-install-recommends chromium"


def find_browser() -> str | None:
    """Its path; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)
