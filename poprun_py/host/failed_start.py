"""Failed start: the report of a process to the launcher if it cannot start its instance's supervisor."""

from __future__ import annotations

import os
import select
import time

from poprun_py.errors import ChannelError
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel, connect
from poprun_py.wire.variables import ADDRESS_VARIABLE, KEY_VARIABLE, RANK_VARIABLE

#: Seconds within which the launcher must answer.
_TIMEOUT = 5.0


def report_failed_start(reason: str) -> bool:
    """Tell the launcher why this instance does not start, and wait until it lets this process go.

    Return whether the launcher has received it.
    """
    try:
        rank = int(os.environ[os.environ[RANK_VARIABLE]])
        address, key = os.environ[ADDRESS_VARIABLE], bytes.fromhex(os.environ[KEY_VARIABLE])
        channel = connect(address, key, timeout=_TIMEOUT)
    except (KeyError, ValueError, ChannelError):
        return False
    try:
        channel.send(messages.Hello(rank, os.uname().nodename, os.getpid()))
        _wait_for((messages.Start, messages.Stop), channel)
        channel.send(messages.NotStarted(reason))
        channel.send(messages.Gone())
        _wait_for((messages.Leave,), channel)
    except ChannelError:  # the launcher is gone, or has no place for this instance
        return False
    finally:
        channel.close()
    return True


def _wait_for(kinds: tuple[type[messages.Message], ...], channel: Channel) -> None:
    """Wait for a message of one of ``kinds``; raise ChannelError if none comes."""
    end = time.monotonic() + _TIMEOUT
    while not any(isinstance(message, kinds) for message in channel.receive()):
        if (left := end - time.monotonic()) <= 0:
            raise ChannelError("the launcher does not answer")
        select.select([channel], [channel] if channel.wants_to_send else [], [], left)
        channel.push()
