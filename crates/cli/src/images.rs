//! Generated images of `demo` and `bench`, cached between runs.

use std::env;
use std::path::{Path, PathBuf};

use feedwater::internals::file::create_private_folder;
use feedwater::internals::footprint::{bytes, counted};
use feedwater_tools::synth::{self, Files, Settings, Uniform};

use super::{CommandError, io_failure, print, progress};

/// Returns the folder below `cache` that contains the set with these settings. Generates the set if
/// it is missing. Prints progress unless `quiet` is set.
pub fn make(cache: &Path, settings: &Settings, quiet: bool) -> Result<PathBuf, CommandError> {
    let directory = cache.join(name(settings));
    let note = |text: String| if quiet { Ok(()) } else { print(text) };
    let summary = match synth::complete(&directory, settings) {
        Some(summary) => summary,
        None => {
            let images = counted(settings.images, "image");
            note(format!("generate  {images} in {}", directory.display()))?;
            // The same folder caches tables and compiled kernels. feedwater trusts these only if no
            // other user can write to the folder, so create it for this user alone.
            create_private_folder(cache).map_err(|error| io_failure(cache, &error))?;
            let bar = progress(settings.images, "images");
            let summary = synth::write(&directory, settings, |_| bar.inc(1))?;
            bar.finish_and_clear();
            summary
        }
    };
    let census = summary.census;
    note(format!("data      {} in {}", bytes(census.bytes), directory.display()))?;
    census.to_string().lines().try_for_each(|line| note(format!("          {line}")))?;
    Ok(directory)
}

/// Returns the folder in which generated images are cached between runs.
pub fn cache() -> Result<PathBuf, CommandError> {
    let var = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("FEEDWATER_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|path| path.join("feedwater")))
        .or_else(|| var("HOME").map(|path| path.join(".cache/feedwater")))
        .ok_or_else(|| {
            let text = "no cache directory: set FEEDWATER_CACHE, XDG_CACHE_HOME or HOME";
            CommandError::Failed(text.into())
        })
}

/// Returns the folder name of a set. It consists of the kind of set, the number of images, and
/// every setting that is not the default. A name such as `synth-2000` is never returned, because
/// folders with such names were created by earlier versions and contain other images.
fn name(settings: &Settings) -> String {
    let images = settings.images;
    let Files::Uniform(Uniform { width, height, quality, progressive }) = settings.files else {
        return format!("imagenet-like-{images}");
    };
    let mut name = format!("uniform-{images}-{width}x{height}");
    if quality != Uniform::default().quality {
        name += &format!("-quality{quality}");
    }
    if progressive {
        name += "-progressive";
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_with_different_settings_have_different_folders() {
        let like_imagenet = Settings { images: 9, ..Settings::default() };
        assert_eq!(name(&like_imagenet), "imagenet-like-9");
        assert_eq!(name(&Settings::uniform(9, 500, 375)), "uniform-9-500x375");
        let files = Files::Uniform(Uniform {
            width: 20,
            quality: 50,
            progressive: true,
            ..Uniform::default()
        });
        assert_eq!(
            name(&Settings { files, ..like_imagenet }),
            "uniform-9-20x375-quality50-progressive"
        );
    }
}
