"""Differential runs against Apache's own Java classes: the SQL92 filter and the strategies.

python -m tests.interop.oracles sql92 --cases 20000 --seed 1
python -m tests.interop.oracles strategies --cases 10000 --seed 1
"""
