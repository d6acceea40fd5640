"""Ops on images: resize, rearrangement of pixels, affine grids, non-maximum suppression."""
