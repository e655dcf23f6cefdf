"""SparrowMQ: Apache RocketMQ for Python and Spark people."""

__version__ = "0.1.0"
