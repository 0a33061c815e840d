//! Generated images of `demo` and `bench`, cached between runs.

use std::env;
use std::path::{Path, PathBuf};

use feedwater::file::create_private_folder;
use feedwater::footprint::{bytes, counted};
use feedwater_tools::synth::{self, Settings};

use super::{CommandError, io_failure, print, progress};

/// Returns the folder below `cache` with the set of these settings, generating it if missing. Prints progress unless `quiet`.
pub fn make(cache: &Path, settings: &Settings, quiet: bool) -> Result<PathBuf, CommandError> {
    let directory = cache.join(name(settings));
    let note = |text: String| if quiet { Ok(()) } else { print(text) };
    let summary = match synth::complete(&directory, settings) {
        Some(summary) => summary,
        None => {
            let images = counted(settings.images, "image");
            note(format!("generate  {images} in {}", directory.display()))?;
            // Tables and kernels are kept in the same folder, and only one of this user alone is believed.
            create_private_folder(cache).map_err(|error| io_failure(cache, &error))?;
            let bar = progress(settings.images, "images");
            let summary = synth::write(&directory, settings, |_| bar.inc(1))?;
            bar.finish_and_clear();
            summary
        }
    };
    note(format!("data      {} in {}", bytes(summary.bytes), directory.display()))?;
    Ok(directory)
}

/// Returns the folder that caches generated images between runs.
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

/// Returns the folder name of a set: `synth-2000`, plus every setting that is not the default.
fn name(settings: &Settings) -> String {
    let Settings { images, width, height, progressive, .. } = *settings;
    let mut name = format!("synth-{images}");
    let default = Settings::default();
    if (width, height) != (default.width, default.height) {
        name += &format!("-{width}x{height}");
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
        let default = Settings { images: 9, ..Settings::default() };
        assert_eq!(name(&default), "synth-9");
        assert_eq!(name(&Settings { progressive: true, ..default }), "synth-9-progressive");
        assert_eq!(
            name(&Settings { width: 20, progressive: true, ..default }),
            "synth-9-20x375-progressive"
        );
    }
}
