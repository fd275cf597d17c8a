"""The C kernels on 64-bit ARM: cross-compiled with c_build's flags, and run by qemu-user.

A call becomes a C program of its own, which reads its arrays from a file, calls one function, and
writes them back. Needed: aarch64-linux-gnu-gcc and qemu-aarch64 (Debian: gcc-aarch64-linux-gnu,
libc6-dev-arm64-cross, qemu-user).
"""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from palaestra.models.local.kernels.c_build import compiled, flags_of

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"  # where Debian's cross compiler keeps them
AVAILABLE = bool(shutil.which(COMPILER) and shutil.which(EMULATOR))

Argument = Tensor | int | float

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include SOURCE
static void *array(FILE *file, long bytes) {
    void *found = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!found || fread(found, 1, bytes, file) != bytes) exit(2);
    return found;
}
int main(int count, char **names) {
    FILE *file = fopen(names[1], "rb");
    READ
    fclose(file);
    FUNCTION(ARGUMENTS);
    file = fopen(names[1], "wb");
    WRITE
    return fclose(file);
}
"""


def run_on_arm(
    source: Path,
    flags: Sequence[str],
    function: str,
    arguments: Sequence[Argument],
    folder: Path,
    cpu: str,
) -> list[Tensor]:
    """Call a function of a C file on an emulated CPU.

    Args:
        source: the C file.
        flags: of the compiler, besides those of c_build.
        function: which one.
        arguments: tensors are arrays, ints are longs.
        folder: for the program and its file.
        cpu: as the compiler names it.

    Returns:
        The arrays after the call.
    """
    arrays = [x for x in arguments if isinstance(x, Tensor)]
    program = PROGRAM.replace("SOURCE", f'"{source}"').replace("FUNCTION", function)
    sizes = [x.numel() * x.element_size() for x in arrays]
    read = (f"void *a{n} = array(file, {size});" for n, size in enumerate(sizes))
    write = (f"fwrite(a{n}, 1, {size}, file);" for n, size in enumerate(sizes))
    names = iter(range(len(arrays)))
    given = (f"a{next(names)}" if isinstance(x, Tensor) else _literal(x) for x in arguments)
    program = program.replace("READ", "\n".join(read)).replace("WRITE", "\n".join(write))
    code = folder / "program.c"
    code.write_text(program.replace("ARGUMENTS", ", ".join(given)))
    file, binary = folder / "arrays", folder / "program"
    file.write_bytes(b"".join(map(_bytes, arrays)))
    ours = [f for f in flags_of("aarch64") if f not in ("-mcpu=native", "-shared")]
    built = [COMPILER, *ours, f"-mcpu={cpu}", *flags, "-o", binary, code, "-lm"]
    subprocess.run(list(map(str, built)), check=True)
    subprocess.run([EMULATOR, "-cpu", "max", "-L", LIBRARIES, binary, file], check=True)
    content, found = file.read_bytes(), []
    for array, size in zip(arrays, sizes, strict=True):
        part, content = content[:size], content[size:]
        found.append(torch.frombuffer(bytearray(part), dtype=array.dtype).view(array.shape))
    return found


def run_here(
    source: Path, flags: Sequence[str], function: str, arguments: Sequence[Argument]
) -> list[Tensor]:
    """Call the same function, compiled for this machine, on copies of the arrays."""
    copies = [x.clone() if isinstance(x, Tensor) else x for x in arguments]
    library = compiled(source, flags)
    assert library is not None
    getattr(library, function)(*map(_passed, copies))
    return [x for x in copies if isinstance(x, Tensor)]


def _passed(x: Argument) -> object:
    if isinstance(x, Tensor):
        return ctypes.c_void_p(x.data_ptr())
    return ctypes.c_long(x) if isinstance(x, int) else ctypes.c_float(x)


def _literal(x: Argument) -> str:
    return f"{x}L" if isinstance(x, int) else f"{x!r}f"


def _bytes(x: Tensor) -> bytes:
    return bytes(x.contiguous().view(torch.uint8).flatten().numpy())
