"""optimisers: update rules as ops, and what changes gradients between their reduction and the update."""
