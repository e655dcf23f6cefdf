"""Records to Arrow columns: many at a time in numpy, the unusual ones one by one."""
