"""Listens at a port of all addresses, of IPv6 and of the loopback only, and returns what it receives at each."""

import socket

PLACES = (("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6), ("127.0.0.1", socket.AF_INET))
sockets = [socket.create_server((address, 0), family=family) for address, family in PLACES]
print(*(listener.getsockname()[1] for listener in sockets), flush=True)
for server in sockets:
    with server.accept()[0] as peer:
        peer.sendall(peer.recv(100))
