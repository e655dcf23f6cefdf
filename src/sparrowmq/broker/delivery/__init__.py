"""What is delivered later than it was sent: delays, times, retries and transactions."""
