"""data: DataLoader and AsynchronousDataAccessor, whose batches are those of a whole step."""

from ipu_emu.poptorch.data.asynchronous import AsynchronousDataAccessor
from ipu_emu.poptorch.data.data_loader import DataLoader

__all__ = ["AsynchronousDataAccessor", "DataLoader"]
