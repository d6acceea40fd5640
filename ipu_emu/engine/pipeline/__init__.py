"""Pipeline: the stages of a pipeline, run by one thread per IPU."""
