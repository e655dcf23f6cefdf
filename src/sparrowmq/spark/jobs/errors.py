"""Errors of the jobs.

RocketMQError
└── JobError      the job cannot be done, or not now; the text says why and what to do
"""

from sparrowmq.spark.errors import RocketMQError


class JobError(RocketMQError):
    """A job stops before it does something wrong."""
