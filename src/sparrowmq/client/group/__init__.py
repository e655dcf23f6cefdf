"""Being a member of a group: rebalance, the queues a consumer holds, and its progress."""
