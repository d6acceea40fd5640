"""optimisers: SGD, Adam and Adaptive as PopART's users configure them."""
