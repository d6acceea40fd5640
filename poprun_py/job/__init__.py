"""Job: the launcher's side of a running job: event loop, state of the instances, failures, restarts, deadlines."""
