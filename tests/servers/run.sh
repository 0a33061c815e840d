#!/usr/bin/env bash
# Runs tests with real servers on the loopback: moto (an S3 emulator from PyPI) and Python's HTTP server. On first use,
# installs moto into target/servers. Without Python or access to PyPI, prints that the tests are skipped, and succeeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=${CARGO_TARGET_DIR:-target}/servers
if ! "$venv/bin/python" -c 'import moto.server, boto3, flask' 2> /dev/null; then
    if ! python3 -c 'import venv, ensurepip' 2> /dev/null; then
        echo "SKIPPED: the tests against real servers need python3 with venv; install python3-venv"
        exit 0
    fi
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 'moto[s3,server]==5.*'; then
        if "$venv/bin/pip" download --quiet --no-deps --retries 0 --dest "$venv" six > /dev/null 2>&1; then
            echo "FAILED: moto cannot be installed, although PyPI is reachable"
            exit 1
        fi
        echo "SKIPPED: the tests against real servers need moto from PyPI, which is unreachable"
        exit 0
    fi
fi
if [ $# -eq 0 ]; then
    set -- cargo test --workspace --test storage -- --ignored third_party::
fi
exec "$venv/bin/python" tests/servers/with_servers.py tests/golden/records "$@"
