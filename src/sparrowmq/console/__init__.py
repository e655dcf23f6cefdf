"""The web console: pages over `Admin`, in a separate process."""
