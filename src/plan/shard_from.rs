//! Setting for the source of rank and world size.

use serde::{Deserialize, Serialize};

/// Source of a loader's rank and world size.
///
/// * `loader.rank` and `loader.world_size`, if both are set. The loader then reads no variables.
/// * `none`: the loader reads the whole set.
/// * The name of a launcher: the loader reads the variables of this launcher, which must be set.
/// * `environment`, the default: the launcher whose variables are set. If no variable is set, the
///   loader reads the whole set. If the variables of several launchers are set, the launcher that
///   started this process counts: `torchrun` (detected by `TORCHELASTIC_RUN_ID`), then Open MPI,
///   then MPICH, then a step of Slurm, then plain `RANK` and `WORLD_SIZE`, then a Kubernetes
///   indexed job. The reason for this order is that `mpirun` starts its daemons through Slurm, and
///   that a pod or a Slurm task may start `torchrun` or `mpirun`.
/// * `RANK` and `WORLD_SIZE` without torchrun must agree with MPI and Slurm, because any script may
///   have set them.
/// * It is an error if a variable is not a number, if only one of rank and world size is set, or if
///   the rank is not below the world size. The message names the variables. The loader does not
///   guess, because a wrong guess could make every process read all samples, or a single process
///   only a part of them.
///
/// | launcher | rank | world |
/// |---|---|---|
/// | `torchrun`, and programs that use PyTorch's `env://` | `RANK` | `WORLD_SIZE` |
/// | `openmpi` (`mpirun`) | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` |
/// | `mpich` (MPICH's and Intel's `mpiexec`) | `PMI_RANK` | `PMI_SIZE` |
/// | `slurm` (`srun`) | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, or else `SLURM_NTASKS` |
/// | `kubernetes` (an indexed job) | `JOB_COMPLETION_INDEX` | `WORLD_SIZE`, or else `loader.world_size` |
///
/// Slurm sets `SLURM_PROCID` and `SLURM_NTASKS` also in a batch script, which runs once.
/// `environment` therefore uses them only in a step of `srun` (`SLURM_STEP_ID`) that is not the
/// interactive step of `salloc`. In a shell that is itself a step of several tasks (`srun
/// --ntasks=4 --pty bash`), the variables are ambiguous, so the loader returns an error. Kubernetes
/// gives a pod its index but not the number of pods: set `WORLD_SIZE` to the job's `completions`,
/// or set `loader.world_size`. PMIx has no variable for the world size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ShardFrom {
    /// The launcher whose variables are set, or the whole set if there is none.
    #[default]
    Environment,
    /// No launcher: the loader reads the whole set.
    None,
    /// Reads the variables `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// Reads the variables `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`.
    OpenMpi,
    /// Reads the variables `PMI_RANK` and `PMI_SIZE`.
    Mpich,
    /// Reads the variables `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS`, or else `SLURM_NTASKS`.
    Slurm,
    /// Reads the variable `JOB_COMPLETION_INDEX`, and `WORLD_SIZE` or else `loader.world_size`.
    Kubernetes,
}
