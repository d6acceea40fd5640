"""optimisers: update rules as ops, and changes of gradients between their reduction and the update."""
