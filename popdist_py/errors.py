"""Errors of popdist_py.

PopdistError
+-- LayoutError              replicas and instances that do not fit together
+-- PopdistEnvironmentError  POPDIST_* values that are missing or malformed
+-- BackendError             a collective before init(), a lost peer, a launcher that does not match the MPI
"""

__all__ = ["BackendError", "LayoutError", "PopdistEnvironmentError", "PopdistError"]


class PopdistError(RuntimeError):
    """Base of every error of this package."""


class LayoutError(PopdistError, ValueError):
    """Replicas and instances do not fit together."""


class PopdistEnvironmentError(PopdistError, ValueError):
    """A POPDIST_* value is missing or malformed."""


class BackendError(PopdistError):
    """The host back end is not initialised, was mismatched, or lost a peer."""
