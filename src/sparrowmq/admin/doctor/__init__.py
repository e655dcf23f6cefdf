"""The doctor: what is wrong with a cluster, topic, group or message, why, and what to do about it.

look.py, message_facts.py ── facts.py ──▶ cluster.py, topic.py, group.py, message.py ──▶ findings.py
ask brokers and members     values       decide, without any I/O                        values
"""
