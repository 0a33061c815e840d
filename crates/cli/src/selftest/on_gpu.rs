//! Runs all checks on the GPU.

use super::super::CommandError;
use super::gpu::Gpu;
use super::{Check, Group, decode, files, hazard, kernels, life, memory};

/// Runs the checks of the requested groups one after another. If there is no GPU, one check reports
/// it: as a failure if a GPU is `required`, and as skipped otherwise. With `brief`, single
/// operators are compared in only two combinations of element type and layout. If `operators`
/// contains names, only the kernels of these operators are compared.
pub fn checks(
    found: &Result<Gpu, (&'static str, String)>,
    required: bool,
    wanted: impl Fn(Group) -> bool,
    brief: bool,
    operators: &[String],
    mut tell: impl FnMut(Vec<Check>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let absent = |name: &str, why: &str| match required {
        true => Check::new(name, Err(why.into())),
        false => Check::skip(name, why),
    };
    let gpu = match found {
        Ok(gpu) => gpu,
        Err((name, why)) => return tell(vec![absent(name, why)]),
    };
    let (major, minor) = gpu.compiler;
    tell(vec![
        Check::new("gpu/device", Ok(gpu.name())),
        Check::new("gpu/compiler", Ok(format!("NVRTC {major}.{minor}"))),
        match &gpu.nvjpeg {
            Ok(()) => Check::new("gpu/nvjpeg", gpu.nvjpeg_version()),
            Err(why) => absent("gpu/nvjpeg", why),
        },
    ])?;
    if wanted(Group::Decode) {
        for checks in decode::checks(gpu) {
            tell(checks)?;
        }
    }
    if wanted(Group::Hazard) {
        tell(hazard::checks(gpu))?;
    }
    if wanted(Group::Files) {
        for checks in files::on_gpu(gpu) {
            tell(checks)?;
        }
    }
    if wanted(Group::Memory) {
        tell(memory::on_gpu(gpu))?;
    }
    if wanted(Group::Life) {
        tell(life::on_gpu(gpu))?;
    }
    // The checks of kernels come last, because compiling hundreds of kernels takes minutes.
    if wanted(Group::Kernels) {
        tell(kernels::checks(gpu, brief, operators))?;
    }
    Ok(())
}
