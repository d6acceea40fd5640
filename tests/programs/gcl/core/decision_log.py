"""Import gcl, which configures no logging, and log to stderr."""

import logging

import gcl

assert not logging.getLogger("gcl").handlers
assert logging.getLogger("gcl").level == logging.NOTSET
gcl.connect(local_replicas=2).close()
