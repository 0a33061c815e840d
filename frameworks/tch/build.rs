//! Compiles `src/dlpack.cpp`, which calls the only function of libtorch that this crate needs and
//! that tch does not bind. Uses the libtorch that `torch-sys` has found.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=src/dlpack.cpp");
    let lib = env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names the folder of libtorch");
    let lib = PathBuf::from(lib);
    let include = lib.with_file_name("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .file("src/dlpack.cpp")
        .compile("feedwater_tch");
    // Lets tests and examples of this package find libtorch without LD_LIBRARY_PATH.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
