"""The doctor: what is wrong with a cluster, topic, group or message, why, and what to do about it.

cluster_facts.py, topic_facts.py …   facts.py   cluster.py, topic.py …        findings.py
ask brokers and members ──────────▶  values ──▶ decide, without any I/O ──▶   values
"""
