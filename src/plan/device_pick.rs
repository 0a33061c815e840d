//! Resolves the device setting with the launcher's local rank.

use std::fmt;

use serde::Serialize;

use crate::error::{Error, Result};

use super::DeviceChoice;
use super::shard::Environment;

/// Device that a loader uses, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DevicePick {
    /// Number of the GPU. `None` for the CPU.
    pub gpu: Option<usize>,
    /// Reason, such as `LOCAL_RANK is 3`.
    pub why: String,
}

impl DevicePick {
    /// Picks the CPU, for the reason `why`.
    pub fn cpu(why: impl Into<String>) -> Self {
        Self { gpu: None, why: why.into() }
    }

    /// Picks a GPU, for the reason `why`.
    pub fn gpu(number: usize, why: impl Into<String>) -> Self {
        Self { gpu: Some(number), why: why.into() }
    }

    /// Resolves a choice, given the number of visible GPUs. Does not check that the GPU exists and
    /// works.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the local rank is not a number, or if there is no GPU with this number.
    pub fn of(choice: DeviceChoice, visible: usize, environment: &Environment) -> Result<Self> {
        match choice {
            DeviceChoice::Cpu => return Ok(Self::cpu("device is cpu")),
            DeviceChoice::Gpu(number) => {
                return Ok(Self::gpu(number, format!("device is {choice}")));
            }
            DeviceChoice::Auto | DeviceChoice::LocalGpu => {}
        }
        if visible == 1 {
            return Ok(Self::gpu(0, "the only visible GPU"));
        }
        let Some((variable, rank)) = environment.local_rank()? else {
            return Ok(Self::gpu(0, "no launcher sets a local rank"));
        };
        let number = usize::try_from(rank).unwrap_or(usize::MAX);
        // If no GPU is visible at all, opening the device fails later with the driver's error,
        // which is more precise.
        if number >= visible && visible > 0 {
            let problem = format!(
                "is {choice}, {variable} is {rank} and {visible} GPUs are visible, so this process has no GPU of its own; \
                 start at most one process per GPU, correct CUDA_VISIBLE_DEVICES, or write cpu or cuda:N"
            );
            return Err(Error::config("device", problem));
        }
        Ok(Self::gpu(number, format!("{variable} is {rank}")))
    }
}

impl Default for DevicePick {
    fn default() -> Self {
        Self::cpu("no GPU was searched for")
    }
}

impl fmt::Display for DevicePick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gpu {
            Some(number) => write!(f, "gpu {number} ({})", self.why),
            None => write!(f, "cpu ({})", self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(choice: DeviceChoice, visible: usize, text: &str) -> Result<DevicePick> {
        let variables = text.split_whitespace().map(|it| {
            let (name, value) = it.split_once('=').unwrap();
            (&*name.to_string().leak(), value.to_string())
        });
        DevicePick::of(choice, visible, &variables.collect())
    }

    fn local(visible: usize, text: &str) -> Option<usize> {
        let [auto, cuda] = [DeviceChoice::Auto, DeviceChoice::LocalGpu]
            .map(|choice| pick(choice, visible, text).unwrap());
        assert_eq!(auto, cuda);
        auto.gpu
    }

    #[test]
    fn each_launchers_local_rank_is_the_number_of_the_gpu() {
        assert_eq!(local(8, ""), Some(0));
        assert_eq!(local(8, "LOCAL_RANK=3"), Some(3));
        assert_eq!(local(8, "OMPI_COMM_WORLD_RANK=11 OMPI_COMM_WORLD_LOCAL_RANK=3"), Some(3));
        assert_eq!(local(8, "PMI_RANK=11 MPI_LOCALRANKID=3"), Some(3));
        assert_eq!(local(8, "PALS_LOCAL_RANKID=3"), Some(3));
        assert_eq!(local(8, "PMI_RANK=11 PMI_LOCAL_RANK=3"), Some(3));
        assert_eq!(local(8, "SLURM_STEP_ID=0 SLURM_PROCID=11 SLURM_LOCALID=3"), Some(3));
    }

    #[test]
    fn the_innermost_launchers_local_rank_counts() {
        let slurm = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1";
        let mpi = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=2";
        assert_eq!(local(8, &format!("{slurm} {mpi} LOCAL_RANK=3 RANK=3 WORLD_SIZE=8")), Some(3));
        assert_eq!(local(8, &format!("{slurm} {mpi}")), Some(2));
        // Slurm sets a local rank in batch scripts and interactive steps too. Such a process is not
        // one of several tasks, so the local rank is ignored.
        assert_eq!(local(8, "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_LOCALID=1"), Some(0));
        assert_eq!(local(8, "SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_LOCALID=1"), Some(0));
    }

    #[test]
    fn the_only_visible_gpu_is_used_whatever_the_local_rank() {
        assert_eq!(local(1, "LOCAL_RANK=3"), Some(0));
        assert_eq!(local(1, "LOCAL_RANK=three"), Some(0));
    }

    #[test]
    fn a_local_rank_without_a_gpu_is_an_error_that_names_both() {
        for choice in [DeviceChoice::Auto, DeviceChoice::LocalGpu] {
            for (text, named) in [
                ("LOCAL_RANK=2", ["LOCAL_RANK", "2 GPUs"]),
                ("LOCAL_RANK=x", ["LOCAL_RANK", "\"x\""]),
            ] {
                let Err(Error::Config(error)) = pick(choice, 2, text) else { panic!("{text}") };
                assert_eq!(error.key, "device");
                assert!(named.iter().all(|it| error.problem.contains(it)), "{}", error.problem);
            }
            assert_eq!(pick(choice, 0, "LOCAL_RANK=2").unwrap().gpu, Some(2));
        }
        assert_eq!(pick(DeviceChoice::Gpu(1), 2, "LOCAL_RANK=7").unwrap().gpu, Some(1));
        assert_eq!(pick(DeviceChoice::Cpu, 2, "LOCAL_RANK=7").unwrap().gpu, None);
    }
}
