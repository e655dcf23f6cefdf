"""The request handlers of a name server, one module per capability."""
