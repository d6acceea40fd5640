"""Errors: the exceptions of popdist_py.

PopdistError                 base class; popdist_error is another name for it
+-- LayoutError              replicas, instances or IPUs that do not fit together
+-- PopdistEnvironmentError  malformed or contradictory POPDIST_* variables
+-- BackendError             a collective that cannot be done: before init(), different calls, a lost instance
"""


class PopdistError(RuntimeError):
    """Base class of all exceptions of popdist_py; a RuntimeError, as PopDist's ``popdist_error`` is."""


class LayoutError(PopdistError, ValueError):
    """Numbers of replicas, instances or IPUs that do not fit together, or an index that does not exist."""


class PopdistEnvironmentError(PopdistError, ValueError):
    """POPDIST_* variables that are malformed, contradict each other, or do not determine what a call returns."""


class BackendError(PopdistError):
    """A collective call that failed.

    ``init`` was not called, the instances make different calls, an instance has ended or does not answer, a value
    cannot be sent, or the MPI library does not match the launcher.
    """
