"""What a process tree and the machine have used, read the same way for every peer. Linux only; standard library only."""

import ctypes
import os
import resource
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def descendants(root):
    """The process ids of a process and of everything that it started and that still runs."""
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
    """Processor seconds of a process, of what it started, and of what of that has ended and was waited for."""
    total = 0
    for process in descendants(root):
        fields = _stat(process)
        if fields:
            total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICKS


def tree_memory_bytes(root):
    """Resident memory of a process tree: proportional set sizes, so that shared pages count once."""
    total = 0
    for process in descendants(root):
        try:
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                lines = dict(line.split(":", 1) for line in file if ":" in line)
            total += int(lines["Pss"].split()[0]) << 10
        except (OSError, KeyError, ValueError):
            pass  # It has ended since.
    return total


def machine_busy_seconds():
    """Processor seconds that all processes of the machine have used together since it started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq = (int(it) for it in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def children_cpu_seconds():
    """Processor seconds of all that this process started and has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class DeviceMemory:
    """Memory in use on GPU 0, by everything that runs there, as NVML tells it."""

    def __init__(self):
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        if self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)):
            raise OSError("NVML does not open GPU 0")

    def used_bytes(self):
        """Bytes in use now."""
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)):
            raise OSError("NVML does not tell the memory of GPU 0")
        return memory[2]


class Peaks:
    """The most memory that a process tree, and the GPU beyond what was in use before, had while the block ran.

    Host memory is looked at often in the beginning and then once a second, since looking costs the tree time; device memory
    fifty times a second."""

    def __init__(self, device_memory):
        self._device_memory = device_memory
        self._idle = device_memory.used_bytes() if device_memory else 0
        self._over = threading.Event()
        self.host_bytes = 0
        self.device_bytes = 0

    def watch(self, root):
        """Starts to look at a process tree."""
        self._thread = threading.Thread(target=self._look, args=(root,))
        self._thread.start()

    def stop(self):
        """Ends looking."""
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
    """Device memory of a CUDA context with nothing in it: what any program on the GPU pays."""
    read, write = os.pipe()
    gone, leave = os.pipe()
    before = device_memory.used_bytes()
    child = os.fork()
    if child == 0:
        os.close(leave)
        cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        failed = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        os.write(write, b"n" if failed else b"y")
        os.read(gone, 1)
        os._exit(0)
    os.close(gone)
    made = os.read(read, 1) == b"y"
    used = device_memory.used_bytes() - before
    for end in (leave, read, write):
        os.close(end)
    os.waitpid(child, 0)
    if not made:
        raise OSError("no CUDA context could be made on GPU 0")
    return used


def _stat(process):
    """The fields of /proc/PID/stat after the name: state, parent, ...; None where the process has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None
