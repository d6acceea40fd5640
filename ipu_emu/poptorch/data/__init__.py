"""data: DataLoader and AsynchronousDataAccessor, whose batches hold the samples of a whole step."""

from ipu_emu.poptorch.data.asynchronous import AsynchronousDataAccessor
from ipu_emu.poptorch.data.data_loader import DataLoader

__all__ = ["AsynchronousDataAccessor", "DataLoader"]
