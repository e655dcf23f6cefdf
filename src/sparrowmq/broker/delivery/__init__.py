"""Messages delivered later than they were sent: delays, timers, retries and transactions."""
