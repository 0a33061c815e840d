"""Fixtures of all tests: sets of PNM images, whose pixels are known without a decoder; programs with two processes; and
a Ray cluster."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading

import numpy
import pytest

SOURCES = pathlib.Path(__file__).parents[2] / "tests" / "simulated"
COMPILER = os.environ.get("CXX", "c++")
#: For each environment variable that names a library, in the order of building: source file, library, libraries to link.
LIBRARIES = {
    "FEEDWATER_LIBCUDA": ("cuda.cpp", "libcuda.so", []),
    "FEEDWATER_LIBNVRTC": ("nvrtc.cpp", "libnvrtc.so", []),
    "FEEDWATER_LIBNVJPEG": ("nvjpeg.cpp", "libnvjpeg.so", ["-lcuda"]),
    "FEEDWATER_LIBNVML": ("nvml.cpp", "libnvidia-ml.so", ["-lcuda"]),
}


def write_image(path, pixels):
    """Writes RGB pixels as a PNM file."""
    height, width, _ = pixels.shape
    path.write_bytes(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes())


def pixels_of(index, width=12, height=8):
    """Returns the pixels of image number `index`."""
    return numpy.random.default_rng(index).integers(0, 256, (height, width, 3), dtype=numpy.uint8)


@pytest.fixture
def folder(tmp_path):
    """A folder of 20 images in two classes. The order of the files is that of their indices."""
    for index in range(20):
        name = tmp_path / "set" / ("cat" if index < 10 else "dog") / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(index))
    return tmp_path / "set"


def interrupted(program):
    """Runs a program, and sends it the signal of Ctrl-C after its first line of output. Returns output, errors and exit
    code."""
    # Shells ignore SIGINT in background jobs, and Python then ignores it too. `env` restores the default.
    command = ["env", "--default-signal=INT", sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # This timer only ends a program that hangs.
        killer = threading.Timer(120, process.kill)
        killer.start()
        try:
            assert process.stdout.readline() == "waits\n"
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate()
        finally:
            process.kill()
            killer.cancel()
    return out, errors, process.returncode


def run_two(program, folder):
    """Runs a program in two processes, started by torchrun. Returns the JSON that each process prints, in the order of
    the ranks."""
    with tempfile.TemporaryDirectory() as prints:
        # Each process prints to a file of its own, because lines of two processes could be mixed in a shared pipe.
        head = f"import os, sys\nsys.stdout = open(os.path.join({prints!r}, os.environ['RANK']), 'w')\n"
        text = head + textwrap.dedent(program).replace("FOLDER", repr(str(folder)))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", sys.executable, "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return [json.loads(pathlib.Path(prints, rank).read_text()) for rank in "01"]


@pytest.fixture(scope="session")
def cluster():
    """A Ray cluster: the driver's node, where no task runs, and three nodes with one core each. All tests of a session
    share the cluster."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray.cluster_utils
    import ray.data

    settings = {"object_store_memory": 100 << 20, "include_dashboard": False}
    # Ray checks a node every 0.5 seconds, and gives it up after five failures: after 2.5 seconds if it was killed, or 50 seconds if it does not answer.
    # The GPU of the driver's node is only declared, and does not exist.
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}
    head = {"num_cpus": 0, "num_gpus": 1, "_system_config": health, **settings}
    cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        cluster.add_node(wait=False, num_cpus=1, object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    # Ray's workers import the tests and the package from these paths.
    path = os.pathsep.join(str(pathlib.Path(it).resolve()) for it in (pathlib.Path(__file__).parent, *sys.path) if str(it))
    environment = {"env_vars": {"PYTHONPATH": path}}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """61 images in two classes."""
    return _classes(tmp_path_factory.mktemp("many") / "set", width=12, height=8)


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """61 images of 54 KB. A shard of 1 MiB has 19 or 20 of them."""
    return _classes(tmp_path_factory.mktemp("large") / "set", width=180, height=100)


def _classes(root, **size):
    for index in range(61):
        name = root / ("cat" if index < 30 else "dog") / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(index, **size))
    return root


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """Environment variables of a process with a simulated GPU, whose kernels run on the CPU."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"the C++ compiler {COMPILER} is not installed")
    built = tmp_path_factory.mktemp("simulated")
    variables = {"FEEDWATER_CACHE": str(built / "kernels")}
    for variable, (source, library, linked) in LIBRARIES.items():
        command = [COMPILER, "-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", f"-Wl,-soname,{library}", "-o", str(built / library)]
        command += [str(SOURCES / source), f"-L{built}", "-Wl,-rpath,$ORIGIN", *linked, "-ldl"]
        subprocess.run(command, check=True)
        variables[variable] = str(built / library)
    return variables
