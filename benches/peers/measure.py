"""Measures the processor time and memory of a process tree and of the machine, in the same way for
every peer. Needs only Linux and the standard library."""

import ctypes
import os
import resource
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def descendants(root):
    """Returns the ids of a process and of its running descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat(entry)
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        process = queue.pop()
        found.append(process)
        queue += children.get(process, [])
    return found


def tree_cpu_seconds(root):
    """Returns the processor seconds of a process and its descendants. Includes descendants that
    have exited, if their parents have waited for them."""
    total = 0
    for process in descendants(root):
        fields = _stat(process)
        if fields:
            total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICKS


def tree_memory_bytes(root):
    """Returns the resident memory of a process tree in bytes. Sums proportional set sizes, which count shared pages
    once."""
    total = 0
    for process in descendants(root):
        try:
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                lines = dict(line.split(":", 1) for line in file if ":" in line)
            total += int(lines["Pss"].split()[0]) << 10
        except (OSError, KeyError, ValueError):
            pass  # The process has exited, so it uses no memory.
    return total


def machine_busy_seconds():
    """Returns the processor seconds of all processes since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq = (int(it) for it in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def children_cpu_seconds():
    """Returns the processor seconds of child processes for which this process has waited."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class DeviceMemory:
    """Reads from NVML how much memory all processes together use on GPU 0."""

    def __init__(self):
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        if self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)):
            raise OSError("NVML cannot open GPU 0")
        self.used_bytes()

    def used_bytes(self):
        """Returns the number of bytes that are in use on the GPU."""
        memory = (ctypes.c_ulonglong * 3)()  # total, free and used bytes
        if self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)):
            raise OSError("NVML cannot read the memory of GPU 0")
        return memory[2]


class Peaks:
    """Measures two peaks between `watch` and `stop`: the peak memory of a process tree, and the
    peak GPU memory beyond what was in use before.

    Samples host memory often at the beginning and then once a second, because sampling slows the processes down. Samples
    device memory fifty times a second."""

    def __init__(self, device_memory):
        self._device_memory = device_memory
        self._idle = device_memory.used_bytes() if device_memory else 0
        self._over = threading.Event()
        self.host_bytes = 0
        self.device_bytes = 0

    def watch(self, root):
        """Starts to sample the memory of a process and its descendants."""
        self._thread = threading.Thread(target=self._look, args=(root,))
        self._thread.start()

    def stop(self):
        """Stops sampling."""
        self._over.set()
        self._thread.join()

    def _look(self, root):
        next_host, pause = 0, 0.02
        while not self._over.wait(0.02):
            if self._device_memory:
                self.device_bytes = max(self.device_bytes, self._device_memory.used_bytes() - self._idle)
            if time.monotonic() >= next_host:
                self.host_bytes = max(self.host_bytes, tree_memory_bytes(root))
                next_host, pause = time.monotonic() + pause, min(2 * pause, 1)


def context_bytes(device_memory):
    """Returns the device memory of an empty CUDA context in bytes. Every program on the GPU needs a context."""
    read, write = os.pipe()
    gone, leave = os.pipe()
    before = device_memory.used_bytes()
    child = os.fork()
    if child == 0:
        try:
            os.close(leave)
            os.write(write, b"y" if _make_context() else b"n")
            os.read(gone, 1)
        finally:
            os._exit(0)
    os.close(gone)
    made = os.read(read, 1) == b"y"
    used = device_memory.used_bytes() - before
    for end in (leave, read, write):
        os.close(end)
    os.waitpid(child, 0)
    if not made:
        raise OSError("no CUDA context could be created on GPU 0")
    return used


def has_gpu():
    """Returns whether the driver can create a CUDA context on GPU 0. Tries this in a child process,
    so that this process does not keep a context."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if _make_context() else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _make_context():
    """Creates a CUDA context on GPU 0. Returns whether that worked."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    context = ctypes.c_void_p()
    return not (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))


def _stat(process):
    """Returns the fields of /proc/PID/stat after the name (state, parent, ...), or None if the process has exited."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None
