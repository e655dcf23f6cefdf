"""Request and response headers, one module per capability."""
