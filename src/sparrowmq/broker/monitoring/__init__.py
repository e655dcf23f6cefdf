"""What a broker tells Prometheus and probes about itself. None of it runs per message."""
