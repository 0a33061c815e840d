//! The stages of a sample's way.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};

/// What is done to a sample, or to a batch, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Opening the source: its listing and its tables. Once.
    List,
    /// Reading the encoded bytes.
    Read,
    /// Parsing the header and planning the sample.
    Header,
    /// Decoding on the host.
    Decode,
    /// Copying to the device, as far as the host takes part.
    Upload,
    /// Decoding on the device; on the host's clock only what handing it over takes.
    DeviceDecode,
    /// The operators and the output conversion, on the host.
    Transform,
    /// The operators and the output conversion, on the device; on the host's clock only what launching them takes.
    Kernel,
    /// Putting a finished sample into its batch, and the batch into the ring.
    HandOver,
}

impl Stage {
    /// All, in the order of a sample's way.
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

    /// The name in reports, metrics and traces.
    pub const fn name(self) -> &'static str {
        match self.c_name().to_str() {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    }

    /// The same for C.
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

/// How many stages there are.
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
