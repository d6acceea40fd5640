"""program: the instructions of a step as plain data, the memory plan of a replica, and the modelled time.

This file imports nothing, so that ``schedules`` loads fast; ``executable`` combines graph, program and plan.
"""
