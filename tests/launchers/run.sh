#!/bin/sh
# Runs the program as several processes under each installed launcher. Checks that the processes together have every
# sample exactly once, and that all have the same number of batches (check.py).
#
#   cargo build --release && tests/launchers/run.sh target/release/feedwater
#
# Supports torchrun (PyPI: torch; Debian: python3-torch), mpirun.openmpi (Debian: openmpi-bin), mpiexec.hydra (Debian:
# mpich) and srun (Debian: slurm-wlm, with a running cluster), and prints which of them are not installed.
# tests/ranks.rs tests the same without a launcher, by setting the variables itself. Exit code: 0 if all checks passed,
# 1 if a check failed or no launcher was found.
set -eu

program=$(realpath "${1:?usage: run.sh PROGRAM}")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

samples=23
batch=3
# Remove the variables of a launcher that may have started this script.
unset RANK WORLD_SIZE TORCHELASTIC_RUN_ID PMI_RANK PMI_SIZE JOB_COMPLETION_INDEX
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE

"$program" synth data --images "$samples" --width 40 --height 30 > synth.log
for last in drop pad partial; do
    cat > "$last.toml" <<TOML
[source]
directory = "data"
[loader]
batch_size = $batch
num_workers = 1
shuffle = true
seed = 1
last_batch = "$last"
[[chain]]
op = "center_crop"
width = 8
height = 8
TOML
done

# The script of one process. It writes samples and output to a folder of its own.
cat > process.sh <<'SH'
mkdir "$2/$$"
exec "$1" dump "$3.toml" --device cpu --batches 99 --json --out "$2/$$" > "$2/$$/result.json"
SH

found=0
# check NAME COMMAND...: runs the command, which must start $world processes, and checks their output.
check() {
    name=$1
    shift
    out="$name-$world-$last"
    mkdir "$out"
    "$@" sh "$work/process.sh" "$program" "$work/$out" "$last" > "$out.log" 2>&1 || {
        cat "$out.log"
        exit 1
    }
    python3 "$here/check.py" "$out" "$name" "$world" "$last" "$samples" "$batch"
}

# each NAME PROGRAM: whether the program is installed.
each() {
    if ! command -v "$2" > /dev/null; then
        echo "$1: $2 is not installed, skipped"
        return 1
    fi
    found=1
}

if each torchrun torchrun; then
    # Write standard output to files and to the terminal. torch 1.13 with Python 3.11 fails with its default, which does
    # neither.
    for world in 1 2 3 5; do for last in drop pad partial; do
        check torchrun torchrun --standalone --no_python --nproc_per_node "$world" \
            --redirects 1 --tee 1 --log_dir "$work/torchrun"
    done; done
fi
if each openmpi mpirun.openmpi; then
    for world in 1 2 3 5; do for last in drop pad partial; do
        check openmpi mpirun.openmpi --allow-run-as-root --oversubscribe -n "$world"
    done; done
fi
if each mpich mpiexec.hydra; then
    for world in 1 2 3 5; do for last in drop pad partial; do
        check mpich mpiexec.hydra -n "$world"
    done; done
fi
if each slurm srun; then
    for world in 1 2 3; do for last in drop pad partial; do
        check slurm srun --overcommit --ntasks "$world"
    done; done
fi
[ "$found" = 1 ]
