//! Gives the crate `FEEDWATER_KERNELS_HASH`, the SHA-256 of every text in `kernels/`: part of the key under
//! which compiled kernels are kept. The texts themselves are embedded where they are used.

use std::path::PathBuf;
use std::{fs, io};

use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=kernels");
    let files = fs::read_dir("kernels")?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = files.collect::<io::Result<Vec<PathBuf>>>()?;
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let text = fs::read(&file)?;
        hash.update(file.to_string_lossy().as_bytes());
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=FEEDWATER_KERNELS_HASH={hex}");
    Ok(())
}
