//! Generated image sets of `bench`, and their pipeline files.

use std::fs;
use std::path::{Path, PathBuf};

use feedwater::internals::header::Header;
use feedwater_tools::synth::{Files, Settings, Uniform};

use super::super::{CommandError, images};
use super::write_if_changed;

/// An image set with its pipeline file.
pub struct Set {
    pub name: String,
    pub file: PathBuf,
    /// Header of an image that stands for all images of the set. `None` if the set has several
    /// kinds of images.
    pub example: Option<Header>,
    /// Whether the user gave the pipeline file. The batch size of such a file is kept, unless
    /// `--batch` is given.
    pub is_users: bool,
}

impl Set {
    /// Creates a set from a user's pipeline file.
    pub fn of_file(file: &Path) -> Self {
        let name = file.display().to_string();
        Self { name, file: file.to_path_buf(), example: None, is_users: true }
    }
}

/// Generates those sets that are missing in the folder `cache`. Returns all sets, the ImageNet-like
/// set first.
pub fn make(cache: &Path, images: u64, quiet: bool) -> Result<Vec<Set>, CommandError> {
    let like_imagenet = Settings { images, ..Settings::default() };
    let small = uniform(images, false);
    let large = Settings::uniform((images / 8).max(1), 2048, 1536);
    let progressive = uniform((images / 4).max(1), true);
    let mut sets = Vec::new();
    let mut folders = Vec::new();
    for (name, settings) in [
        ("imagenet-like", &like_imagenet),
        ("500x375", &small),
        ("2048x1536", &large),
        ("500x375-progressive", &progressive),
    ] {
        let directory = images::make(cache, settings, quiet)?;
        let folder = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let source = format!("directory = \"{folder}\"");
        let is_uniform = settings.files != Files::LikeImageNet;
        let first = fs::read(directory.join(settings.file(0))).ok().filter(|_| is_uniform);
        let example = first.and_then(|bytes| Header::parse(&bytes).ok());
        sets.push(set(cache, name.into(), &folder, &source, example)?);
        folders.push(folder);
    }
    let stem = format!("{}-mixed", folders[1]);
    let list = format!("{stem}.tsv");
    write_if_changed(&cache.join(&list), &mixed([&folders[1], &folders[3]], &small, &progressive))?;
    sets.push(set(cache, "500x375-mixed".into(), &stem, &format!("list = \"{list}\""), None)?);
    Ok(sets)
}

/// Settings of a set of 500x375 images.
fn uniform(images: u64, progressive: bool) -> Settings {
    let files = Files::Uniform(Uniform { progressive, ..Uniform::default() });
    Settings { images, files, ..Settings::default() }
}

/// Creates a set whose pipeline file has the usual training chain of vision models.
fn set(
    cache: &Path,
    name: String,
    stem: &str,
    source: &str,
    example: Option<Header>,
) -> Result<Set, CommandError> {
    let file = cache.join(format!("{stem}.toml"));
    write_if_changed(&file, &format!("[source]\n{source}\n{TRAINING}"))?;
    Ok(Set { name, file, example, is_users: false })
}

const TRAINING: &str = r#"[loader]
shuffle = true
last_batch = "partial"
[output]
dtype = "f16"
layout = "nchw"
[[chain]]
op = "random_resized_crop"
width = 224
height = 224
[[chain]]
op = "flip"
horizontal = 0.5
[[chain]]
op = "normalize"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
"#;

/// Returns the lines of a list file in which every eighth image is progressive.
fn mixed(folders: [&str; 2], small: &Settings, progressive: &Settings) -> String {
    let line = |index: u64| {
        let (folder, settings, index) = match index % 8 {
            7 => (folders[1], progressive, index / 8 % progressive.images),
            _ => (folders[0], small, index),
        };
        let file = settings.file(index);
        format!("{folder}/{}\t{}\n", file.display(), index % settings.classes)
    };
    (0..small.images).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_mixed_images_is_progressive_and_labels_match() {
        let (small, progressive) = (uniform(24, false), uniform(6, true));
        let text = mixed(["base", "more"], &small, &progressive);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 24);
        assert_eq!(lines.iter().filter(|line| line.starts_with("more/")).count(), 3);
        assert_eq!(lines[6], "base/class006/0000006.jpg\t6");
        assert_eq!(lines[15], "more/class001/0000001.jpg\t1");
    }
}
