"""Workers: threads and processes that prepare steps ahead, and the shared memory that they fill."""
