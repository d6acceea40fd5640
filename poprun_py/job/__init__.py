"""One running job, seen by the launcher: event loop, the state of its instances, failures, restarts, teardown."""
