//! Where rank and world come from, as it is set.

use serde::{Deserialize, Serialize};

/// Who tells a loader its rank and the number of loaders that share the set.
///
/// * `loader.rank` and `loader.world`, where both are written, and nothing else.
/// * `none`: nobody, the loader reads the whole set.
/// * The name of a launcher: its variables, which must be set.
/// * `environment`, the default: the launcher whose variables are set. Where no variable is set, the loader reads the whole
///   set. Where several launchers have set theirs, it is the one that started this very process: `torchrun` (known by
///   `TORCHELASTIC_RUN_ID`), then Open MPI, then MPICH, then a step of Slurm, then plain `RANK` and `WORLD_SIZE`, then a
///   Kubernetes indexed job; an `mpirun` starts its daemons through Slurm, and a pod or a task may start either.
/// * Plain `RANK` and `WORLD_SIZE`, which any script may have left there, must agree with MPI and Slurm.
/// * A variable whose partner is missing, or that is not a number, or a rank that is not below its world, is an error that
///   names the variables. A wrong guess would give every process all samples, or one process a part of them.
///
/// | launcher | rank | world |
/// |---|---|---|
/// | `torchrun`, and what PyTorch's `env://` reads | `RANK` | `WORLD_SIZE` |
/// | `openmpi` (`mpirun`) | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` |
/// | `mpich` (MPICH's and Intel's `mpiexec`) | `PMI_RANK` | `PMI_SIZE` |
/// | `slurm` (`srun`) | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, or else `SLURM_NTASKS` |
/// | `kubernetes` (an indexed job) | `JOB_COMPLETION_INDEX` | `WORLD_SIZE`, or else `loader.world` |
///
/// Slurm sets `SLURM_PROCID` and `SLURM_NTASKS` also in a batch script, which runs once. So `environment` believes them in a
/// step of `srun` only (`SLURM_STEP_ID`), and not in the step of an interactive shell of `salloc`. In a shell that is itself a
/// step of several tasks (`srun --ntasks=4 --pty bash`) it cannot know, and asks. Kubernetes tells a pod its index but not how
/// many there are: set `WORLD_SIZE` to the job's `completions`, or write `loader.world`. PMIx has no variable for the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ShardFrom {
    /// The launcher whose variables are set; the whole set where there is none.
    #[default]
    Environment,
    /// Nobody: the whole set.
    None,
    /// `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`.
    OpenMpi,
    /// `PMI_RANK` and `PMI_SIZE`.
    Mpich,
    /// `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS`.
    Slurm,
    /// `JOB_COMPLETION_INDEX`, and `WORLD_SIZE` or `loader.world`.
    Kubernetes,
}
