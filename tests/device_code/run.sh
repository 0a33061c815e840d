#!/usr/bin/env bash
# Runs the tests of the GPU path with real device code: NVIDIA's NVRTC compiles the kernels, and the PTX interpreter of
# crates/ptx executes them on the simulated machine. On first use, installs NVRTC from PyPI into target/device-code.
# Without Python or access to PyPI, prints that the tests are skipped, and succeeds, because scripts/test has already
# run them with kernels compiled for the host.
#
#     tests/device_code/run.sh [command]      default command: all tests that launch kernels
#     FEEDWATER_NVRTC=/path/libnvrtc.so       uses this library instead
#     SIM_EVERY_SCHEDULE=1                    runs every launch under every schedule of warps and blocks;
#                                             takes five times as long
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/device-code
nvrtc=${FEEDWATER_NVRTC:-}
find_nvrtc() { if [ -d "$venv" ]; then find "$venv" -name 'libnvrtc.so.*' | sort | tail -n 1; fi; }
if [ -z "$nvrtc" ]; then
    nvrtc=$(find_nvrtc)
fi
if [ -z "$nvrtc" ]; then
    if ! python3 -c 'import venv, ensurepip' 2> /dev/null; then
        echo "SKIPPED: device code needs NVRTC, whose installation needs python3 with venv: install python3-venv"
        exit 0
    fi
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 'nvidia-cuda-nvrtc-cu12==12.9.*'; then
        if "$venv/bin/pip" download --quiet --no-deps --retries 0 --dest "$venv" six > /dev/null 2>&1; then
            echo "FAILED: NVRTC cannot be installed although PyPI is reachable"
            exit 1
        fi
        echo "SKIPPED: device code needs NVRTC from PyPI, which is unreachable"
        exit 0
    fi
    nvrtc=$(find_nvrtc)
fi
echo "NVRTC: ${nvrtc#"$target"/}"
cargo build --quiet -p feedwater-ptx --profile interpreter
# Copies NVRTC under another soname. dlopen returns a library that the process has already loaded under the same soname,
# but some tests must load the simulated NVRTC.
renamed=$target/device-code-nvrtc
mkdir -p "$renamed"
LC_ALL=C sed 's/libnvrtc\.so\./librenam.so./g' "$nvrtc" > "$renamed/libnvrtc.so"
ln -sf "$(dirname "$nvrtc")"/libnvrtc-builtins.so.* "$renamed"
export SIM_NVRTC=$renamed/libnvrtc.so SIM_PTX=$target/interpreter/libfeedwater_ptx.so
# Without a cache directory of its own, a run could load kernels that were compiled for the host.
export FEEDWATER_CACHE=$venv/cache
if [ $# -gt 0 ]; then
    exec "$@"
fi

# Builds once, then runs the tests in two processes, because one interpreter uses only one core.
cargo test --workspace --quiet --no-run --test device --test gpu --test loader --test operators
{
    # `engines::failures` and `nvjpeg::failures` launch no kernel, and read memory that was never written on purpose.
    cargo test --workspace --test operators -- parity:: \
        && cargo test --workspace --test gpu -- failures:: handoff:: --skip engines:: --skip nvjpeg:: \
        && cargo test --workspace --test loader -- preprocessor::
} &
half=$!
failed=0
cargo test --workspace --test gpu -- --include-ignored device_code:: driver:: loader:: || failed=1
cargo test --workspace --test device -- --ignored the_kernels_checks_pass_with_device_code || failed=1
wait "$half" || failed=1
exit "$failed"
