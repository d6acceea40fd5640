"""Pooling: the largest element, mean or norm of windows and regions, and unpooling."""
