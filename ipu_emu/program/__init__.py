"""program: what a Pod does in a step, as plain data, and the memory plan of a replica.

This file imports nothing, so that ``schedules`` loads fast; ``executable`` combines graph, program and plan.
"""
