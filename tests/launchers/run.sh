#!/bin/sh
# Runs the program as several processes under each installed launcher. Checks with check.py that all processes together
# read every sample exactly once, and that all have the same number of batches.
#
#   cargo build --release && tests/launchers/run.sh target/release/feedwater
#
# Searches for torchrun (PyPI: torch; Debian: python3-torch), mpirun.openmpi (Debian: openmpi-bin), mpiexec.hydra
# (Debian: mpich) and srun (Debian: slurm-wlm, with a running cluster), and prints which are missing.
# crates/cli/tests/cli/ranks.rs tests the same without launchers, by setting the variables itself. Exit code: 0 if all
# runs are correct; 1 if one is wrong or no launcher was found.
set -eu

program=$(realpath "${1:?usage: run.sh PROGRAM}")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

samples=23
batch=3
# The launcher that started this script may have set these variables.
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

# One process. Its samples and its output are written to its own folder.
cat > process.sh <<'SH'
mkdir "$2/$$"
exec "$1" dump "$3.toml" --device cpu --batches 99 --json --out "$2/$$" > "$2/$$/result.json"
SH

found=0
# check NAME COMMAND...: runs the command, which starts $world processes.
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
    # Writes standard output to files and to the terminal. torch 1.13 with Python 3.11 fails with its default, which is
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
