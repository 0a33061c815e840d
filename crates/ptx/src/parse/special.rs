//! Special registers.

use crate::isa::{MaskOf, Special};

/// Returns the special register with this name.
pub(crate) fn special(word: &str) -> Option<Special> {
    let dimension = |dot: &str| match dot {
        ".x" => Some(0),
        ".y" => Some(1),
        ".z" => Some(2),
        _ => None,
    };
    for (name, make) in [
        ("%tid", Special::Thread as fn(u8) -> Special),
        ("%ntid", Special::ThreadCount),
        ("%ctaid", Special::Block),
        ("%nctaid", Special::BlockCount),
    ] {
        if let Some(dimension) = word.strip_prefix(name).and_then(dimension) {
            return Some(make(dimension));
        }
    }
    Some(match word {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::WarpCount,
        "%smid" | "%gridid" => Special::Zero,
        "%nsmid" => Special::One,
        "%lanemask_eq" => Special::LaneMask(MaskOf::Equal),
        "%lanemask_lt" => Special::LaneMask(MaskOf::Less),
        "%lanemask_le" => Special::LaneMask(MaskOf::LessEqual),
        "%lanemask_gt" => Special::LaneMask(MaskOf::Greater),
        "%lanemask_ge" => Special::LaneMask(MaskOf::GreaterEqual),
        "%clock" | "%clock64" | "%globaltimer" => Special::Clock,
        "%dynamic_smem_size" => Special::DynamicSharedBytes,
        "%total_smem_size" => Special::TotalSharedBytes,
        _ => return None,
    })
}
