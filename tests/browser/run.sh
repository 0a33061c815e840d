#!/usr/bin/env bash
# Tests the pages of reports in a real browser. Installs Debian's chromium-headless-shell if no Chromium is found,
# writes the pages with the code of the library and the program, and checks them with check.py. Images of the pages are
# written to target/browser. Fails if no browser can be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! python3 tests/browser/browser.py; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 chromium-headless-shell)
    "${install[@]}" || { "${as_root[@]}" apt-get update -q && "${install[@]}"; } || {
        echo "FAILED: the page cannot be tested without a browser: install chromium, or name one in FEEDWATER_BROWSER"
        exit 1
    }
fi
pages=$(realpath -m "${CARGO_TARGET_DIR:-target}/browser")
rm -rf "$pages"
mkdir -p "$pages"
FEEDWATER_PAGES="$pages" cargo test --workspace --test insight --test cli -- --ignored write_pages_for_the_browser
exec python3 tests/browser/check.py "$pages"
