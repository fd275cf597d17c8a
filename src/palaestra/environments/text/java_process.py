"""A Java virtual machine for one world, driven through py4j until it is closed.

ScienceWorld and TextWorld-Express are Scala programs whose Python wrappers start such a machine
in their own way. We start it ourselves, for worlds that must be equal and come in hundreds:

- **Constant identity hashes.** The simulators walk through hash sets of objects, by default in
  an order that differs from load to load and from machine to machine, and with it what the dice
  are thrown for. With constant hashes the order is that of insertion, and equal tasks are equal
  worlds.
- **Less memory**: a small collector and room for objects as needed, where the default is a quarter
  of the computer's memory (measured with ScienceWorld: 0.2 to 0.45 instead of 1.5 GB in all).
- **Silence at the source**: what the simulators print is dropped in Java instead of being carried
  through a Python thread.
- **An end that can be relied on**: `close`, the garbage collector or the end of this process kill
  it. Only those who know a secret of this process can connect to it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import weakref
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from palaestra.core.errors import EnvironmentFault, MissingSystemPart

OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # the same for every object
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",  # no file in the temporary folder
)
CONSTANT = 1  # what that hash is


class JavaProcess:
    """A virtual machine with the classes of one jar."""

    def __init__(self, jar: str, megabytes: int) -> None:
        """Start it, with so much memory for objects; it takes about a second.

        Raises:
            EnvironmentFault: Java did not start.
            MissingSystemPart: it is a Java without constant identity hashes.
        """
        try:
            (port, secret), process = _launched(jar, megabytes)
        except (OSError, ValueError, Py4JError) as error:
            raise EnvironmentFault("reset", f"Java did not start: {error}") from error
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
        self._process, self._owner = process, os.getpid()
        self.close = weakref.finalize(self, _end, gateway, process, self._owner)
        self.jvm: Any = gateway.jvm
        lang = self.jvm.java.lang
        lang.System.setOut(self.jvm.java.io.PrintStream(os.devnull))
        if lang.System.identityHashCode(lang.Object()) != CONSTANT:
            version = lang.System.getProperty("java.vm.name")
            self.close()
            raise MissingSystemPart(
                f"The 'java' on the PATH ({version}) has no constant identity hashes, without "
                "which equal tasks are not equal worlds; install OpenJDK's HotSpot."
            )

    @property
    def alive(self) -> bool:
        """Whether it can still be used: it runs, and not for the process that we were forked of."""
        return self.close.alive and os.getpid() == self._owner and self._process.poll() is None

    def lines(self, words: Any) -> list[str]:
        """The strings of a Java list, in one exchange instead of one for each."""
        joined: str = self.jvm.java.lang.String.join("\n", words)
        return joined.split("\n") if joined else []


def _launched(jar: str, megabytes: int) -> tuple[tuple[int, str], subprocess.Popen[bytes]]:
    port, secret, process = launch_gateway(
        classpath=jar,
        cwd=os.path.dirname(jar),  # where the simulators look for their data
        javaopts=[*OPTIONS, f"-Xmx{megabytes}m"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    return (port, secret), process


def _end(gateway: Any, process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child leaves its parent's machine alone
    client = gateway._gateway_client
    client.is_connected = False  # nothing is sent to it any more, not even what was collected
    client.close()
    process.kill()
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
