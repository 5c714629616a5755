"""``no_network.py SCRIPT-OR-MODULE ARGUMENT…``: every use of the network by the command is printed and raises an error.

Python calls its audit hooks for every connection and every name lookup (PEP 578), and no code can bypass them. Sockets
within the machine do not count as network.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from typing import Any

FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request")
LOCAL = ("127.0.0.1", "::1", "localhost")


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in FORBIDDEN:
        return
    if event == "socket.connect" and (arguments[0].family == socket.AF_UNIX or arguments[1][0] in LOCAL):
        return
    print(f"network: {event} {arguments}", file=sys.stderr)
    os._exit(77)


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    sys.addaudithook(refuse)
    target, sys.argv = sys.argv[1], sys.argv[1:]
    if target.endswith(".py"):
        runpy.run_path(target, run_name="__main__")
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
