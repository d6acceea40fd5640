"""Update rules as ops, and what changes gradients between reduction and update."""
