"""Named methods executed step by step over the transports, as IPUs would execute them."""
