//! Setting for the device of a loader.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Device that a loader uses.
///
/// | TOML and `--device` | device |
/// |---|---|
/// | `auto` | this process's GPU if there is a usable one, else the CPU |
/// | `cpu` | the CPU |
/// | `cuda` | this process's GPU; an error if there is none |
/// | `cuda:N` | GPU number N; an error if there is none |
///
/// If exactly one GPU is visible, it is this process's GPU. Otherwise the launcher's local rank is
/// the number of the GPU. Without a local rank, GPU 0 is used. A local rank that is not below the
/// number of visible GPUs is an error, also with `auto`, because processes would share a GPU
/// unnoticed.
///
/// Local ranks are read from the first of these variables that is set: `LOCAL_RANK` (torchrun,
/// DeepSpeed, Accelerate), `OMPI_COMM_WORLD_LOCAL_RANK` (Open MPI), `MPI_LOCALRANKID`,
/// `PALS_LOCAL_RANKID` and `PMI_LOCAL_RANK` (MPICH, Intel MPI, Cray), `SLURM_LOCALID` (in a step of
/// Slurm). `gpu` and `gpu:N` mean the same as `cuda` and `cuda:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// This process's GPU if there is a usable one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// This process's GPU; an error if there is none.
    LocalGpu,
    /// The GPU with this number; an error if there is none.
    Gpu(usize),
}

/// Description of the expected values, for error messages.
const WANTED: &str = "\"auto\", \"cpu\", \"cuda\" or \"cuda:N\" with the number of a GPU";

impl DeviceChoice {
    /// Whether the choice requires a GPU: without a usable one, building the loader fails.
    pub fn needs_gpu(self) -> bool {
        matches!(self, DeviceChoice::LocalGpu | DeviceChoice::Gpu(_))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::LocalGpu => f.write_str("cuda"),
            DeviceChoice::Gpu(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("expected {WANTED}");
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" | "gpu" => Ok(DeviceChoice::LocalGpu),
            _ => {
                let number = text.strip_prefix("cuda:").or_else(|| text.strip_prefix("gpu:"));
                let number = number.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
                number.and_then(|it| it.parse().ok()).map(DeviceChoice::Gpu).ok_or_else(unknown)
            }
        }
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ChoiceVisitor)
    }
}

struct ChoiceVisitor;

impl Visitor<'_> for ChoiceVisitor {
    type Value = DeviceChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<DeviceChoice, E> {
        value.parse().map_err(|_| E::invalid_value(Unexpected::Str(value), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_round_trip_through_text_and_former_names_are_accepted() {
        for (choice, text, former) in [
            (DeviceChoice::Auto, "auto", "auto"),
            (DeviceChoice::Cpu, "cpu", "cpu"),
            (DeviceChoice::LocalGpu, "cuda", "gpu"),
            (DeviceChoice::Gpu(0), "cuda:0", "gpu:0"),
            (DeviceChoice::Gpu(12), "cuda:12", "gpu:12"),
        ] {
            assert_eq!(choice.to_string(), text);
            assert_eq!([text, former].map(str::parse), [Ok(choice), Ok(choice)]);
            let json = format!("\"{text}\"");
            assert_eq!(serde_json::to_string(&choice).unwrap(), json);
            assert_eq!(serde_json::from_str::<DeviceChoice>(&json).unwrap(), choice);
        }
        for text in
            ["", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:99999999999999999999"]
        {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<DeviceChoice>("0").is_err());
    }
}
