"""Ops on images: resize, rearrangement of pixels, grids, sampling, non-maximum suppression."""
