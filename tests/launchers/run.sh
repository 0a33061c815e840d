#!/bin/sh
# Runs the program as several processes under each launcher that is installed, and checks that all of them together have
# every sample exactly once, and equally many batches (check.py).
#
#   cargo build --release && tests/launchers/run.sh target/release/feedwater
#
# Looks for torchrun (PyPI: torch; Debian: python3-torch), mpirun.openmpi (Debian: openmpi-bin), mpiexec.hydra (Debian: mpich)
# and srun (Debian: slurm-wlm, with a cluster that is running), and says which of them it has not found. tests/ranks.rs does
# the same without a launcher, by setting the variables itself. Exit code: 0 all that ran is right, 1 something is
# wrong, or no launcher was found.
set -eu

program=$(realpath "${1:?usage: run.sh PROGRAM}")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

samples=23
batch=3
# Variables of a launcher that has started this script are not those of the processes below.
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

# One process: its samples and what it says go to a folder of its own.
cat > process.sh <<'SH'
mkdir "$2/$$"
exec "$1" dump "$3.toml" --device cpu --batches 99 --json --out "$2/$$" > "$2/$$/result.json"
SH

found=0
# check NAME COMMAND...: the command starts as many processes as $world says.
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

# each NAME PROGRAM: whether it is there.
each() {
    if ! command -v "$2" > /dev/null; then
        echo "$1: $2 is not installed, skipped"
        return 1
    fi
    found=1
}

if each torchrun torchrun; then
    # Standard output to files and to the terminal: torch 1.13 with Python 3.11 fails with its own default, which is neither.
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
