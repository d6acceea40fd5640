"""Check the cases of a number of replicas and a kind of group with the sizes of the command line."""

import sys

from tests.gcl.helpers.every_collective import work

work(int(sys.argv[1]), sys.argv[2], tuple(map(int, sys.argv[3:])))
