"""networks: known networks as lists of blocks, each with its parameters, operations and activations."""

from ipu_emu.predict.networks.block import Block, BlockKind, Network
from ipu_emu.predict.networks.network_table import NETWORKS, NetworkEntry, network

__all__ = ["NETWORKS", "Block", "BlockKind", "Network", "NetworkEntry", "network"]
