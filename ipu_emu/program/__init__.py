"""program: what a Pod does in a step, as plain data, and where everything lies in memory.

This face imports nothing, so that ``schedules`` starts in a blink; ``executable`` is where everything comes together.
"""
