"""The web console: pages over `Admin`, in a process of its own."""
