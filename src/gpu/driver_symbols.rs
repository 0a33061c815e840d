//! Driver functions that this crate needs.

/// Functions of the driver, each with the code that calls it. cudarc panics if a function is
/// missing, so all functions are looked up before the driver is first called. The tests below
/// detect calls of functions that are not listed.
pub(super) const DRIVER_SYMBOLS: &[(&str, &str)] = &[
    ("cuCtxGetCurrent", "result::ctx::get_current"),
    ("cuCtxSetCurrent", "result::ctx::set_current"),
    ("cuCtxSynchronize", "result::ctx::synchronize"),
    ("cuDeviceGet", "result::device::get"),
    ("cuDeviceGetAttribute", "result::device::get_attribute"),
    ("cuDeviceGetCount", "result::device::get_count"),
    ("cuDeviceGetName", "result::device::get_name"),
    ("cuDevicePrimaryCtxRelease_v2", "result::primary_ctx::release"),
    ("cuDevicePrimaryCtxRetain", "result::primary_ctx::retain"),
    ("cuDriverGetVersion", "sys::cuDriverGetVersion"),
    ("cuEventCreate", "sys::cuEventCreate"),
    ("cuEventDestroy_v2", "result::event::destroy"),
    ("cuEventElapsedTime", "function(\"cuEventElapsedTime\")"),
    ("cuEventQuery", "result::event::query"),
    ("cuEventRecord", "result::event::record"),
    ("cuEventSynchronize", "result::event::synchronize"),
    ("cuFuncSetAttribute", "result::function::set_function_attribute"),
    ("cuGetErrorName", "error.error_name"),
    ("cuGetErrorString", "error.error_string"),
    ("cuInit", "result::init"),
    ("cuLaunchKernel", "result::launch_kernel"),
    ("cuMemAlloc_v2", "result::malloc_sync"),
    ("cuMemFreeHost", "result::free_host"),
    ("cuMemFree_v2", "result::free_sync"),
    ("cuMemGetInfo_v2", "result::mem_get_info"),
    ("cuMemHostAlloc", "result::malloc_host"),
    ("cuMemcpyDtoDAsync_v2", "result::memcpy_dtod_async"),
    ("cuMemcpyDtoHAsync_v2", "result::memcpy_dtoh_async"),
    ("cuMemcpyHtoDAsync_v2", "result::memcpy_htod_async"),
    ("cuMemsetD8Async", "result::memset_d8_async"),
    ("cuModuleGetFunction", "result::module::get_function"),
    ("cuModuleLoadData", "result::module::load_data"),
    ("cuModuleUnload", "result::module::unload"),
    ("cuStreamCreate", "result::stream::create"),
    ("cuStreamDestroy_v2", "result::stream::destroy"),
    ("cuStreamSynchronize", "result::stream::synchronize"),
    ("cuStreamWaitEvent", "result::stream::wait_event"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Driver functions that this crate can do without.
    const OPTIONAL: [&str; 2] = ["cuCtxRecordEvent", "cuThreadExchangeStreamCaptureMode"];

    /// Functions of the simulated driver that only tests call.
    const OF_TESTS: [&str; 4] = [
        "cuCtxPopCurrent_v2",
        "cuCtxPushCurrent_v2",
        "cuLaunchHostFunc",
        "cuStreamCreateWithPriority",
    ];

    #[test]
    fn every_call_of_the_driver_in_the_code_is_listed() {
        let mut called = BTreeSet::new();
        for file in files(Path::new("src"), "rs") {
            let code: String = file.lines().filter(|it| !it.trim().starts_with("//")).collect();
            let code: String = code.split_whitespace().collect();
            for (start, _) in code.match_indices("result::") {
                let path = &code[start..];
                let end = path.find(|it: char| !it.is_ascii_lowercase() && !"_:".contains(it));
                let (path, rest) = path.split_at(end.unwrap_or(path.len()));
                if rest.starts_with('(') {
                    called.insert(path.to_owned());
                }
            }
            for (start, prefix) in code.match_indices("sys::cu") {
                let name = &code[start + prefix.len()..];
                let end = name.find(|it: char| !it.is_ascii_alphanumeric() && it != '_');
                let name = &name[..end.unwrap_or(name.len())];
                // A lower-case letter after `sys::cu` belongs to a type of the CUDA runtime, such
                // as `sys::cudaError`.
                if name.starts_with(|it: char| it.is_ascii_uppercase()) {
                    called.insert(format!("{prefix}{name}"));
                }
            }
        }
        assert!(called.len() > 30, "{called:?}");
        let listed: BTreeSet<_> =
            DRIVER_SYMBOLS.iter().map(|(_, call)| (*call).to_owned()).collect();
        let missing: Vec<_> = called.difference(&listed).collect();
        assert!(missing.is_empty(), "not in DRIVER_SYMBOLS: {missing:?}");
    }

    #[test]
    fn every_function_of_the_simulated_driver_is_listed() {
        let mut exported = 0;
        for file in files(Path::new("tests/simulated"), "cpp") {
            for line in file.lines().filter_map(|line| line.strip_prefix("API int cu")) {
                let name = format!("cu{}", line.split('(').next().unwrap());
                let listed = DRIVER_SYMBOLS.iter().any(|(symbol, _)| *symbol == name);
                assert!(
                    listed || OPTIONAL.contains(&&*name) || OF_TESTS.contains(&&*name),
                    "{name} is not in DRIVER_SYMBOLS"
                );
                exported += 1;
            }
        }
        assert!(exported >= DRIVER_SYMBOLS.len());
    }

    /// Returns the contents of all files with this extension below a directory of the repository.
    fn files(below: &Path, extension: &str) -> Vec<String> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(below);
        let mut texts = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                texts.extend(files(&path, extension));
            } else if path.extension().is_some_and(|it| it == extension) {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
        texts
    }
}
