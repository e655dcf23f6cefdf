"""What a broker says of itself to Prometheus and to probes. None of it runs for a message."""
