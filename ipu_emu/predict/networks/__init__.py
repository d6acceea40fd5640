"""networks: known networks as lists of blocks, each with its parameters, operations and activations."""

from ipu_emu.predict.networks.block import BlockKind, BlockProduct, Network, NetworkBlock
from ipu_emu.predict.networks.network_table import NETWORKS, NetworkEntry, network
from ipu_emu.predict.networks.transformers import masked_positions

__all__ = [
    "NETWORKS", "BlockKind", "BlockProduct", "Network", "NetworkBlock", "NetworkEntry", "masked_positions",
    "network",
]  # fmt: skip
