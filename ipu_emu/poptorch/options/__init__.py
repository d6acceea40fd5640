"""options: poptorch.Options with all of its categories."""
