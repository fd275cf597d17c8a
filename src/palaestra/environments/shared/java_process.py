"""A Java virtual machine for one environment, driven through py4j until it is closed.

ScienceWorld and TextWorld-Express are Scala programs; their Python wrappers start a JVM with their
own options. We start it ourselves, because environments must be deterministic and run in hundreds:

- **Constant identity hashes.** The simulators iterate over hash sets of objects. By default the
  order differs between loads and between machines, and the order decides which object a random
  number is drawn for. With constant hashes it is the insertion order, and equal tasks give equal
  environments.
- **Less memory**: a small collector and a heap that grows as needed, where the default is a quarter
  of the computer's memory (measured with ScienceWorld: 0.2 to 0.45 instead of 1.5 GB in all).
- **No output**: what the simulators print is dropped in Java instead of being passed through a
  Python thread.
- **Reliable shutdown**: `close`, the garbage collector or the exit of this process kills it. A
  secret of this process is needed to connect to it.
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
CONSTANT = 1  # the value of that hash


class JavaProcess:
    """A virtual machine with the classes of one jar."""

    def __init__(self, jar: str, megabytes: int) -> None:
        """Start it with a heap of at most `megabytes`; this takes about a second.

        Raises:
            EnvironmentFault: Java did not start.
            MissingSystemPart: this Java has no constant identity hashes.
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
                f"The 'java' on the PATH ({version}) has no constant identity hashes, so equal "
                "tasks would give different episodes; install OpenJDK's HotSpot."
            )

    @property
    def alive(self) -> bool:
        """Whether it can still be used: it runs, and it is not a parent process's."""
        return self.close.alive and os.getpid() == self._owner and self._process.poll() is None

    def lines(self, words: Any) -> list[str]:
        """Return the strings of a Java list, with one call instead of one per string."""
        joined: str = self.jvm.java.lang.String.join("\n", words)
        return joined.split("\n") if joined else []


def _launched(jar: str, megabytes: int) -> tuple[tuple[int, str], subprocess.Popen[bytes]]:
    port, secret, process = launch_gateway(
        classpath=jar,
        cwd=os.path.dirname(jar),  # the simulators search for their data here
        javaopts=[*OPTIONS, f"-Xmx{megabytes}m"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    return (port, secret), process


def _end(gateway: Any, process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child does not stop its parent's JVM
    client = gateway._gateway_client
    client.is_connected = False  # send nothing more, not even garbage-collection messages
    client.close()
    process.kill()
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
