"""Print the number of calls that are kept after prepared calls."""

import sys

import popdist_py
from tests.gcl.core.test_prepared_call import kept_after
from tests.gcl.helpers.instance import connect

popdist_py.init()
print(kept_after(connect(host=sys.argv[1][popdist_py.host_backend().rank])))
