"""A filter on this process's system calls: no network, nothing written, no other process started.

It needs no privilege (seccomp with PR_SET_NO_NEW_PRIVS) and cannot be taken off again. What it
refuses fails with EPERM, as if the user had no permission. Files may be opened for reading.
Numbers are those of the kernel's tables, arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h; on another machine nothing is filtered.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # linux/seccomp.h, SECCOMP_RET_*
_LOAD, _EQUAL, _SET, _ABOVE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06  # linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # where struct seccomp_data has them
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CLONE_THREAD = 0x10000  # linux/sched.h
_OLD_NUMBERS = 0x40000000  # x32, another table of numbers


@dataclass(frozen=True)
class _Machine:
    """One machine's numbers: what is refused, what is said not to exist, and what depends."""

    architecture: int  # linux/audit.h, AUDIT_ARCH_*
    refused: tuple[int, ...]
    opening: tuple[tuple[int, int], ...]  # number, and which argument has the flags
    clone: int


_ABSENT = (435, 437)  # clone3 and openat2, whose flags lie in memory; libraries do without them
_EVERYWHERE = (424, 425, 434)  # pidfd_send_signal, io_uring_setup, pidfd_open
_MACHINES = {
    "x86_64": _Machine(
        architecture=0xC000003E,
        # socket connect accept sendto bind listen accept4 fork vfork execve execveat kill tkill
        # tgkill truncate rename mkdir rmdir creat link unlink symlink chmod fchmod chown fchown
        # lchown ptrace mknod mount umount2 setxattr* removexattr* mkdirat mknodat fchownat unlinkat
        # renameat linkat symlinkat fchmodat renameat2 utimensat process_vm_readv process_vm_writev
        # unshare setns bpf userfaultfd add_key request_key keyctl utime utimes futimesat fchmodat2
        refused=(
            *(41, 42, 43, 44, 49, 50, 288, 57, 58, 59, 322, 62, 200, 234, 76, 82, 83, 84, 85, 86),
            *(87, 88, 90, 91, 92, 93, 94, 101, 133, 165, 166, 188, 189, 190, 197, 198, 199, 258),
            *(259, 260, 263, 264, 265, 266, 268, 316, 280, 310, 311, 272, 308, 321, 323, 248, 249),
            *(250, 132, 235, 261, 452, *_EVERYWHERE),
        ),
        opening=((2, 1), (257, 2)),
        clone=56,
    ),
    "aarch64": _Machine(
        architecture=0xC00000B7,
        # the same calls, as far as this table has them
        refused=(
            *(198, 203, 202, 206, 200, 201, 242, 221, 281, 129, 130, 131, 45, 33, 34, 35, 36, 37),
            *(38, 276, 39, 40, 52, 53, 54, 55, 5, 6, 7, 14, 15, 16, 117, 270, 271, 97, 268, 280),
            *(282, 217, 218, 219, 88, 452, *_EVERYWHERE),
        ),
        opening=((56, 2),),
        clone=220,
    ),
}


def install() -> bool:
    """Filter this process and its threads from now on; whether that could be done."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    code = _program(machine)
    content = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(content))
    program = ctypes.create_string_buffer(head, len(head))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return not prctl(_SECCOMP, _FILTER, ctypes.addressof(program), 0, 0)


def _program(machine: _Machine) -> bytes:
    """The filter in the kernel's form: instructions of eight bytes, which jump forward only."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    lines = [_line(_LOAD, _ARCHITECTURE), *_unless_equal(machine.architecture, refuse)]
    lines += [_line(_LOAD, _NUMBER), *_if(_ABOVE, _OLD_NUMBERS, refuse)]
    for number in machine.refused:
        lines += _if(_EQUAL, number, refuse)
    for number in _ABSENT:
        lines += _if(_EQUAL, number, absent)
    for number, argument in machine.opening:
        flags = [_line(_LOAD, _ARGUMENTS + 8 * argument), *_if(_SET, _WRITES, refuse)]
        flags += [_line(_RETURN, _ALLOW)]
        lines += [_line(_EQUAL, number, 0, len(flags)), *flags]
    threads = [_line(_LOAD, _ARGUMENTS), *_if(_SET, _CLONE_THREAD, _ALLOW)]
    threads += [_line(_RETURN, refuse)]
    lines += [_line(_EQUAL, machine.clone, 0, len(threads)), *threads]
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _if(test: int, value: int, answer: int) -> list[bytes]:
    return [_line(test, value, 0, 1), _line(_RETURN, answer)]


def _unless_equal(value: int, answer: int) -> list[bytes]:
    return [_line(_EQUAL, value, 1, 0), _line(_RETURN, answer)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
