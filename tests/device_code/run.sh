#!/usr/bin/env bash
# Runs the tests of the GPU path with real device code: NVIDIA's NVRTC compiles the kernels, and the interpreter of PTX
# (crates/ptx) executes them on the simulated machine. Installs NVRTC from PyPI into target/device-code on first use.
# Without Python or access to PyPI it prints that the tests are skipped, and succeeds. scripts/test runs the same tests
# with kernels compiled for the host.
#
#   tests/device_code/run.sh [command]      default: the tests that launch kernels, and the kernels' part of the self-test
#   FEEDWATER_NVRTC=/path/libnvrtc.so       uses this library instead
#   SIM_EVERY_SCHEDULE=1                    runs every launch under every schedule of warps and blocks: five times as long
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
        echo "SKIPPED: device code needs NVRTC, and its installation python3 with venv; install python3-venv"
        exit 0
    fi
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 'nvidia-cuda-nvrtc-cu12==12.9.*'; then
        if "$venv/bin/pip" download --quiet --no-deps --retries 0 --dest "$venv" six > /dev/null 2>&1; then
            echo "FAILED: NVRTC cannot be installed, though PyPI can be reached"
            exit 1
        fi
        echo "SKIPPED: device code needs NVRTC from PyPI, which cannot be reached"
        exit 0
    fi
    nvrtc=$(find_nvrtc)
fi
echo "NVRTC: ${nvrtc#"$target"/}"
cargo build --quiet -p feedwater-ptx
# Use a copy with another soname. Otherwise the dynamic loader would return this library to tests that must load the
# simulated NVRTC.
renamed=$target/device-code-nvrtc
mkdir -p "$renamed"
LC_ALL=C sed 's/libnvrtc\.so\./librenam.so./g' "$nvrtc" > "$renamed/libnvrtc.so"
ln -sf "$(dirname "$nvrtc")"/libnvrtc-builtins.so.* "$renamed"
export SIM_NVRTC=$renamed/libnvrtc.so SIM_PTX=$target/debug/libfeedwater_ptx.so
# Use another cache, because the usual one may have kernels that were compiled for the host.
export FEEDWATER_CACHE=$venv/cache
if [ $# -gt 0 ]; then
    exec "$@"
fi

# Build once, then run two halves side by side, because an interpreter runs on one core.
cargo test --workspace --quiet --no-run --test device --test gpu --test loader --test operators
{
    cargo test --workspace --test operators -- parity:: && cargo test --workspace --test gpu -- failures:: handoff:: \
        && cargo test --workspace --test loader -- preprocessor::
} &
half=$!
failed=0
cargo test --workspace --test gpu -- --include-ignored device_code:: driver:: loader:: || failed=1
cargo test --workspace --test device -- --ignored the_kernels_checks_pass_with_device_code || failed=1
wait "$half" || failed=1
exit "$failed"
