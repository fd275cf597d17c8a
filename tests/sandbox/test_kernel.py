"""The seccomp filter, and control groups."""

from __future__ import annotations

import struct
import subprocess

import pytest

from palaestra.sandbox import seccomp
from palaestra.sandbox.base import Limits
from palaestra.sandbox.cgroups import CONTROLLERS, ControlGroup, delegated

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def judge(machine: str, number: int, first: int = 0, second: int = 0, foreign: bool = False) -> int:
    """Return the filter's verdict on a call, by interpreting its program."""
    architecture = 1 if foreign else ARCHITECTURES[machine]
    data = struct.pack("<IIQ6Q", number, architecture, 0, first, second, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("<HBBI", seccomp.program(machine)))
    at, held = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            met = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += if_true if met else if_false


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_refused_calls_are_refused_and_all_others_pass(machine: str) -> None:
    column = list(ARCHITECTURES).index(machine)
    refused = {numbers[column] for numbers in seccomp.REFUSED.values()}
    special = {(56, 220)[column], 435, (41, 198)[column], (16, 29)[column]}
    for number in (*range((335, 295)[column]), *range(424, 457)):
        if number not in special:
            assert judge(machine, number) == (EPERM if number in refused else ALLOW), number


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_calls_that_no_one_looked_at_do_not_exist(machine: str) -> None:
    own = {"x86_64": 334, "aarch64": 294}[machine]
    x32 = (0x40000000, 0x40000001, 0x40000000 + 520)
    for number in (*range(own + 1, 424), *range(457, 1000), *x32, 2**31, 2**32 - 1):
        assert judge(machine, number) == ENOSYS, number


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_processes_are_made_and_namespaces_are_not(machine: str) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    assert judge(machine, clone, first=0x11) == ALLOW
    assert judge(machine, clone, first=0x3D0F00) == ALLOW  # a thread
    assert judge(machine, 435) == ENOSYS
    for flag in (
        0x80,
        0x20000,
        0x2000000,
        0x4000000,
        0x8000000,
        0x10000000,
        0x20000000,
        0x40000000,
    ):
        assert judge(machine, clone, first=flag | 0x11) == EPERM


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_sockets_that_a_namespace_holds_back_are_the_only_ones(machine: str) -> None:
    number = {"x86_64": 41, "aarch64": 198}[machine]
    allowed = [family for family in range(50) if judge(machine, number, first=family) == ALLOW]
    assert allowed == [1, 2, 10, 16]


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_no_one_types_into_a_terminal_for_someone_else(machine: str) -> None:
    number = {"x86_64": 16, "aarch64": 29}[machine]
    assert judge(machine, number, second=0x5412) == EPERM
    assert judge(machine, number, second=0x541C) == EPERM
    assert judge(machine, number, second=0x5401) == ALLOW


def test_calls_of_another_architecture_end_the_program() -> None:
    assert judge("x86_64", 1, foreign=True) == KILL
    assert judge("aarch64", 1, foreign=True) == KILL


class TestGroups:
    @pytest.fixture
    def group(self) -> ControlGroup:
        if delegated() is None:
            pytest.skip("this machine lets us make no control group (cgroups v2)")
        made = ControlGroup.make(Limits(memory=64 * 2**20, processes=4))
        assert made is not None
        return made

    def test_a_group_counts_and_ends_its_processes(self, group: ControlGroup) -> None:
        join = 'echo $$ > "$0/cgroup.procs"; (setsid sleep 60 &) ; while :; do :; done'
        process = subprocess.Popen(["sh", "-c", join, str(group.folder)])
        while group.cpu_seconds() < 0.02:
            assert process.poll() is None
        group.kill()
        assert process.wait(5) == -9
        group.remove()
        assert not group.folder.exists()

    def test_limits_are_the_kernels_where_controllers_are_handed_on(
        self, group: ControlGroup
    ) -> None:
        try:
            has = (group.folder / "cgroup.controllers").read_text().split()
            if not all(controller in has for controller in CONTROLLERS):
                pytest.skip("memory and pids are not handed on here")
            assert (group.folder / "memory.max").read_text().strip() == str(64 * 2**20)
            assert (group.folder / "pids.max").read_text().strip() == "12"
        finally:
            group.remove()
