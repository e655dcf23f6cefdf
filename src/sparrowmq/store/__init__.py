"""Commit log, consume queues, index, checkpoint, dispatch and recovery: files, synchronous."""
