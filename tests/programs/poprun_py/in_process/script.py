"""Print which process runs this script, and how; exit with the number in the module next to it."""

import os
import sys

import other

print(__name__, sys.argv, os.getpid() == int(sys.argv[1]), os.environ["POPDIST_NUM_LOCAL_REPLICAS"])
sys.exit(other.number)
