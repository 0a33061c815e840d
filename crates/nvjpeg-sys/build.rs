//! Regenerates `src/bindings.rs` if the feature `bindgen` is on. Otherwise does nothing.

fn main() {
    #[cfg(feature = "bindgen")]
    regenerate();
}

/// Reads `nvjpeg.h` from the directory `NVJPEG_INCLUDE` and writes its declarations, without
/// comments, to `src/bindings.rs`. CUDA's own headers are not needed, because `include-stubs/`
/// declares the two CUDA types that `nvjpeg.h` uses.
#[cfg(feature = "bindgen")]
fn regenerate() {
    println!("cargo:rerun-if-env-changed=NVJPEG_INCLUDE");
    let include = std::env::var("NVJPEG_INCLUDE")
        .expect("feature `bindgen` needs NVJPEG_INCLUDE, the directory that holds nvjpeg.h");
    bindgen::Builder::default()
        .header(format!("{include}/nvjpeg.h"))
        .clang_arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include-stubs"))
        .allowlist_function("nvjpeg.*")
        .allowlist_type("nvjpeg.*")
        .allowlist_var("NVJPEG_.*")
        .dynamic_library_name("NvJpegLib")
        .dynamic_link_require_all(false)
        // A newer library may return values that this header does not define, so Rust enums are not
        // used.
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate_comments(false)
        .use_core()
        .wrap_unsafe_ops(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .expect("nvjpeg.h is C that libclang can read")
        .write_to_file(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bindings.rs"))
        .expect("src/ is writable");
}
