#!/usr/bin/env bash
# Compares the golden data of tests/golden/operators with the results of the installed libraries: runs each script with
# --check. Uses python3, or the Python that FEEDWATER_GOLDEN_PYTHON names. Skips scripts whose libraries are not
# installed, and prints what is missing. The script does not install them, because they are large (torch alone is over 1
# GB).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/operators"

python=${FEEDWATER_GOLDEN_PYTHON:-python3}
if ! "$python" -c '' 2> /dev/null; then
    echo "SKIPPED: the golden data needs Python; name one in FEEDWATER_GOLDEN_PYTHON"
    exit 0
fi

# Prints the modules that a script imports or looks up and that are not installed.
missing() {
    "$python" - "$1" << 'END'
import ast, importlib.util, pathlib, sys

def wanted(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "find_spec":
            yield ast.literal_eval(node.args[0])

def module(name):
    """Returns the first name of a module's path, or the first two for NVIDIA's libraries, which are all inside of `nvidia`."""
    return ".".join(name.split(".")[:2 if name.startswith("nvidia.") else 1])

def installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False

found, files = set(), [pathlib.Path(sys.argv[1])]
for file in files:
    for name in sorted({module(name) for name in wanted(file)} - found):
        found.add(name)
        own = [path for path in (file.with_name(f"{name}.py"), pathlib.Path("..", f"{name}.py")) if path.is_file()]
        files += own[:1]
        if not own and not installed(name):
            print(name)
END
}

failed=0
for script in *.py; do
    [ "$script" != golden.py ] || continue
    absent=$(missing "$script" | sort -u | tr '\n' ' ')
    if [ -n "$absent" ]; then
        echo "SKIPPED: $script needs ${absent% }"
        continue
    fi
    printf '%s: ' "$script"
    "$python" "$script" --check || { echo "FAILED: $script"; failed=1; }
done
exit "$failed"
