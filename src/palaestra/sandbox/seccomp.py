"""The seccomp filter: system calls that programs in a sandbox may not make, as a BPF program.

Everything that a compiler, an interpreter or a shell needs is allowed. The filter denies calls that
inspect other processes, change mounts, create namespaces, load code into the kernel, or hold memory
that no process is charged for. It denies sockets of families that a network namespace does not
isolate (virtual machines' own, Bluetooth, raw packets). Calls newer than those reviewed here fail
as unknown. Other architectures' call tables end the program. Source: Linux
`Documentation/userspace-api/seccomp_filter.rst`.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct

# By name: number on x86_64, number on aarch64 (None: it does not exist there).
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "unshare": (272, 97), "setns": (308, 268),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "vhangup": (153, 58), "lookup_dcookie": (212, 18), "fanotify_init": (300, 262),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
# Numbers of the reviewed calls: those of one architecture up to here, and those common to all, up
# to `futex_requeue` of Linux 6.7.
OWN = {"x86_64": 334, "aarch64": 294}
SHARED = range(424, 457)
SOCKETS = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)  # 16: netlink, used by libc
NAMESPACES = 0x7E020080  # every CLONE_NEW… flag of clone(2)
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: inject input into a terminal

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data


def supported() -> bool:
    """Return whether this machine's call table is known here."""
    return platform.machine() in _ARCHITECTURES


def program(machine: str | None = None) -> bytes:
    """Return the filter: consecutive `struct sock_filter` of 8 bytes each."""
    machine = machine or platform.machine()
    architecture, column = _ARCHITECTURES[machine]
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    absent = _step(_RETURN, _ERRNO | errno.ENOSYS)
    code += [
        _step(_JUMP_AT_LEAST, SHARED.stop, 0, 1),  # far above: x86_64's x32 call table
        absent,
        _step(_JUMP_AT_LEAST, SHARED.start, 2, 0),
        _step(_JUMP_AT_LEAST, OWN[machine] + 1, 0, 1),
        absent,
    ]
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            code += [_step(_JUMP_EQUAL, number, 0, 1), refuse]
    # Its flags are in memory, where a filter cannot read them; without it libc uses clone.
    code += [
        _step(_JUMP_EQUAL, _CLONE3[column], 0, 1),
        absent,
        _step(_JUMP_EQUAL, _CLONE[column], 0, 4),
        _step(_LOAD, _FIRST),
        _step(_JUMP_SET, NAMESPACES, 0, 1),
        refuse,
        _step(_RETURN, _ALLOW),
        _step(_JUMP_EQUAL, _SOCKET[column], 0, 3 + len(SOCKETS)),
        _step(_LOAD, _FIRST),
    ]
    for left, family in reversed(list(enumerate(reversed(SOCKETS)))):
        code.append(_step(_JUMP_EQUAL, family, left + 1, 0))
    code += [refuse, _step(_RETURN, _ALLOW)]
    code += [_step(_JUMP_EQUAL, _IOCTL[column], 0, 4), _step(_LOAD, _SECOND)]
    code += [_step(_JUMP_EQUAL, _TERMINAL[0], 1, 0), _step(_JUMP_EQUAL, _TERMINAL[1], 0, 1)]
    code += [refuse, _step(_RETURN, _ALLOW)]
    return b"".join(code)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
