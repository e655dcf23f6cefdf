"""Reading a broker's commit log from its files, for the `rocketmq-log` source."""
