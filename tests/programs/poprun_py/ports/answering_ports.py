"""Print which of the ports of an address answer."""

import socket
import sys

for port in map(int, sys.argv[2:]):
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex((sys.argv[1], port)) == 0:
            print(port)
