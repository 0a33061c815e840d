//! Detection of unsupported formats, for error messages that say how to convert the file.

use super::EXTENSIONS;

/// Maximum number of bytes of a `ftyp` box that are searched for brands.
const MOST_BRAND_BYTES: usize = 256;

/// Signatures of formats: position, bytes, name, and a command that converts the format.
const FORMATS: [(usize, &[u8], &str, &str); 10] = [
    (0, b"II+\0", "a BigTIFF", ""),
    (0, b"MM\0+", "a BigTIFF", ""),
    (0, &[0xFF, 0x0A], "a JPEG XL", JXL),
    (4, b"JXL \r\n", "a JPEG XL", JXL),
    (4, b"jP  \r\n", "a JPEG 2000", "opj_decompress -i in.jp2 -o out.png (OpenJPEG)"),
    (0, b"8BPS", "a Photoshop file", ""),
    (0, b"%PDF", "a PDF", ""),
    (0, b"PK\x03\x04", "a ZIP archive, such as .npz", NPZ),
    (0, &[0x1F, 0x8B], "a gzip file", ""),
    (0, b"P7\n", "a PAM", "pamtopnm in.pam > out.ppm (Netpbm)"),
];
const JXL: &str = "djxl in.jxl out.png (libjxl)";
const HEIC: &str = "heif-convert in.heic out.jpg (libheif)";
const NPZ: &str = "numpy.save(\"out.npy\", numpy.load(\"in.npz\")[\"name\"])";
const AVIF: &str = "avifdec in.avif out.png (libavif)";

/// Describes bytes in an unsupported format.
pub(super) fn looks_like(bytes: &[u8]) -> String {
    let known = FORMATS
        .iter()
        .find(|(at, magic, ..)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
        .map(|&(.., name, program)| (name, program));
    match known.or_else(|| media(bytes)) {
        Some((name, "")) => return format!("the bytes look like {name}"),
        Some((name, program)) => {
            return format!(
                "the bytes look like {name}; convert the file first, for example with `{program}`"
            );
        }
        None => {}
    }
    let head = &bytes[..bytes.len().min(64)];
    if head.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7E)) {
        return match is_path(bytes) {
            true => "the bytes look like the path of an image; the source list reads images by \
                     their paths, and Parquet by the path in a struct of bytes and path"
                .into(),
            false => "the bytes look like text".into(),
        };
    }
    let start: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("the file starts with {}", start.join(" "))
}

/// Whether bytes are one line of text that ends like the name of an image.
fn is_path(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes.trim_ascii()) else { return false };
    let extension = text.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    !text.contains('\n') && extension.is_some_and(|it| EXTENSIONS.contains(&&*it))
}

/// Returns name and command for an ISO media file by its brands. Many cameras put HEIF's general
/// brand first, and HEIC or AVIF only among the compatible brands.
fn media(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let content = bytes.get(4..)?.strip_prefix(b"ftyp")?;
    let len = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    let content = &content[..content.len().min(len.saturating_sub(8)).min(MOST_BRAND_BYTES)];
    // The second word of the box is a version, not a brand.
    let brands = || content.as_chunks::<4>().0.iter().enumerate().filter(|(at, _)| *at != 1);
    let has = |known: &[&[u8; 4]]| brands().any(|(_, brand)| known.contains(&brand));
    Some(if has(&[b"avif", b"avis"]) {
        ("an AVIF", AVIF)
    } else if has(&[b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"]) {
        ("a HEIC", HEIC)
    } else if has(&[b"mif1", b"mif2", b"msf1"]) {
        ("a HEIF", HEIC)
    } else {
        ("an MP4 or a related format", "")
    })
}

/// Returns the command that converts files with this extension, given in lower case.
pub(crate) fn program_for(extension: &str) -> Option<&'static str> {
    match extension.trim_start_matches('.') {
        "heic" | "heif" | "hif" => Some(HEIC),
        "avif" => Some(AVIF),
        "jxl" => Some(JXL),
        _ => None,
    }
}
