"""Exceptions: the errors of ipu_emu under PopART's names; the text is in ``args[0]``."""

from ipu_emu import errors

popart_exception = errors.EmulatorError
popart_internal_exception = errors.InternalError
popart_runtime_error = errors.SessionError
OutOfMemoryException = errors.OutOfMemoryError
poplibs_exception = errors.PoplibsError
poplar_exception = errors.PoplarError
poplar_runtime_error = errors.PoplarRuntimeError
poplar_application_runtime_error = errors.ApplicationRuntimeError
poplar_system_runtime_error = errors.SystemRuntimeError
poplar_recoverable_runtime_error = errors.RecoverableError
poplar_unrecoverable_runtime_error = errors.UnrecoverableError
poplar_unknown_runtime_error = errors.UnknownError
