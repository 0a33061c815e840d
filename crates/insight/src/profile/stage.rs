//! Stages of a pipeline, by which times are measured and reported.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};

/// Stage in the processing of a sample or batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Opening the source: listing its files and reading its tables. Runs once.
    List,
    /// Reading the encoded bytes.
    Read,
    /// Parsing the header and planning the sample.
    Header,
    /// Decoding on the host.
    Decode,
    /// Copying encoded or decoded images to the device. Host times cover only the host's part of
    /// the copy.
    Upload,
    /// Decoding on the device. Host times cover only the submission to the device.
    DeviceDecode,
    /// The operators and the output conversion, on the host.
    Transform,
    /// The operators and the output conversion, on the device. Host times cover only the launch of
    /// the kernels.
    Kernel,
    /// Putting a finished sample into its batch, and the batch into the ring.
    HandOver,
}

impl Stage {
    /// All stages, in processing order.
    pub const ALL: [Stage; 9] = [
        Stage::List,
        Stage::Read,
        Stage::Header,
        Stage::Decode,
        Stage::Upload,
        Stage::DeviceDecode,
        Stage::Transform,
        Stage::Kernel,
        Stage::HandOver,
    ];

    /// Name of the stage in reports, metrics and traces.
    pub const fn name(self) -> &'static str {
        match self.c_name().to_str() {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    }

    /// Name of the stage as a C string, for profilers of NVIDIA.
    pub const fn c_name(self) -> &'static CStr {
        match self {
            Stage::List => c"list",
            Stage::Read => c"read",
            Stage::Header => c"header",
            Stage::Decode => c"decode",
            Stage::Upload => c"upload",
            Stage::DeviceDecode => c"device_decode",
            Stage::Transform => c"transform",
            Stage::Kernel => c"kernel",
            Stage::HandOver => c"hand_over",
        }
    }
}

/// Number of stages.
pub const STAGES: usize = Stage::ALL.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_named_once_and_in_order() {
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
            let json = serde_json::to_string(&stage).unwrap();
            assert_eq!(json, format!("\"{}\"", stage.name()));
        }
    }
}
