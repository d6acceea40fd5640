"""Make the calls of the command line, a pickle in hexadecimal digits; print what each returned."""

import pickle
import sys

from tests.gcl.helpers.simulated_hosts import say

say(*pickle.loads(bytes.fromhex(sys.argv[1])))
