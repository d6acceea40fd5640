"""cache: executables on disk, so that a model is compiled once."""
