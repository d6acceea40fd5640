"""The launch plan: which instance runs where, with what; decided without starting anything, and printed."""
