"""Sums of products: matrix products, convolutions, einsum, quantised products."""
