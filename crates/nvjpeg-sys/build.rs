//! Regenerates `src/bindings.rs` if the feature `bindgen` is on. Otherwise does nothing.

fn main() {
    #[cfg(feature = "bindgen")]
    regenerate();
}

/// Functions that feedwater uses. bindgen also declares the types of their arguments.
#[cfg(feature = "bindgen")]
const FUNCTIONS: [&str; 37] = [
    "nvjpegBufferDeviceCreateV2",
    "nvjpegBufferDeviceDestroy",
    "nvjpegBufferDeviceResize",
    "nvjpegBufferDeviceRetrieve",
    "nvjpegBufferPinnedCreateV2",
    "nvjpegBufferPinnedDestroy",
    "nvjpegBufferPinnedResize",
    "nvjpegBufferPinnedRetrieve",
    "nvjpegCreateEx",
    "nvjpegCreateExV2",
    "nvjpegDecodeBatchedEx",
    "nvjpegDecodeBatchedInitialize",
    "nvjpegDecodeBatchedPreAllocate",
    "nvjpegDecodeBatchedSupportedEx",
    "nvjpegDecodeJpegDevice",
    "nvjpegDecodeJpegHost",
    "nvjpegDecodeJpegTransferToDevice",
    "nvjpegDecodeParamsCreate",
    "nvjpegDecodeParamsDestroy",
    "nvjpegDecodeParamsSetOutputFormat",
    "nvjpegDecodeParamsSetROI",
    "nvjpegDecodeParamsSetScaleFactor",
    "nvjpegDecoderCreate",
    "nvjpegDecoderDestroy",
    "nvjpegDecoderStateCreate",
    "nvjpegDestroy",
    "nvjpegGetHardwareDecoderInfo",
    "nvjpegGetProperty",
    "nvjpegJpegStateCreate",
    "nvjpegJpegStateDestroy",
    "nvjpegJpegStreamCreate",
    "nvjpegJpegStreamDestroy",
    "nvjpegJpegStreamGetFrameDimensions",
    "nvjpegJpegStreamParse",
    "nvjpegJpegStreamParseHeader",
    "nvjpegStateAttachDeviceBuffer",
    "nvjpegStateAttachPinnedBuffer",
];

/// Reads `nvjpeg.h` from the directory `NVJPEG_INCLUDE` and writes the declarations of
/// [`FUNCTIONS`], without comments, to `src/bindings.rs`. CUDA's own headers are not needed,
/// because `include-stubs/` declares the two CUDA types that `nvjpeg.h` uses.
#[cfg(feature = "bindgen")]
fn regenerate() {
    println!("cargo:rerun-if-env-changed=NVJPEG_INCLUDE");
    let include = std::env::var("NVJPEG_INCLUDE")
        .expect("feature `bindgen` needs NVJPEG_INCLUDE, the directory that holds nvjpeg.h");
    bindgen::Builder::default()
        .header(format!("{include}/nvjpeg.h"))
        .clang_arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include-stubs"))
        .allowlist_function(FUNCTIONS.join("|"))
        .allowlist_var("NVJPEG_.*")
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
