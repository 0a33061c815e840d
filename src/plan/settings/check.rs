//! Checks of user settings that need no source, machine or GPU.

use crate::decode::JpegDecoder;
use crate::error::{Error, Result};
use crate::image::PixelFormat;
use crate::op::{Operator, Resize, View};

use super::super::Route;
use super::super::values::MOST;
use super::{CacheSettings, ColumnSettings, DecodeSettings, LoaderSettings, Settings};

impl Settings {
    /// Validates the values.
    pub fn check(&self) -> Result<()> {
        let LoaderSettings { prefetch, shuffle_window, rank, .. } = self.loader;
        let LoaderSettings { batch_size: batch, num_workers: workers, world_size: world, .. } =
            self.loader;
        // `auto` values are chosen within their bounds, so they need no check.
        let [workers, prefetch] = [workers, prefetch].map(|count| count.fixed().unwrap_or(1));
        let at_least_one = [
            ("loader.batch_size", batch as u64),
            ("loader.num_workers", workers as u64),
            ("loader.prefetch", prefetch as u64),
            ("loader.world_size", world.unwrap_or(1)),
            ("loader.shuffle_window", shuffle_window.unwrap_or(1)),
            ("limits.max_pixels", self.limits.max_pixels),
            ("limits.max_side", self.limits.max_side.into()),
            ("limits.max_file_bytes", self.limits.max_file_bytes),
            ("limits.max_field_bytes", self.limits.max_field_bytes),
            ("limits.max_outline_points", self.limits.max_outline_points),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                return Err(Error::config(key, "must be at least 1, is 0"));
            }
        }
        for (key, value) in [("loader.num_workers", workers), ("loader.prefetch", prefetch)] {
            if value > MOST {
                return Err(Error::config(key, format!("must be at most {MOST}, is {value}")));
            }
        }
        if self.limits.cpu_threads == Some(0) {
            let problem = "must be at least 1, is 0; leave it out for no limit";
            return Err(Error::config("limits.cpu_threads", problem));
        }
        if batch > 1 << 20 {
            let problem = format!("must be at most {}, is {batch}", 1 << 20);
            return Err(Error::config("loader.batch_size", problem));
        }
        self.loader.check_order()?;
        if let (Some(rank), Some(world)) = (rank, world)
            && rank >= world
        {
            let problem =
                format!("is {rank}, but must be below loader.world_size, which is {world}");
            return Err(Error::config("loader.rank", problem));
        }
        for (key, bytes) in
            [("storage.read_ahead", self.storage.read_ahead), ("storage.cache", self.storage.cache)]
        {
            check_bytes(key, bytes)?;
        }
        self.storage.check()?;
        self.targets.check()?;
        ColumnSettings::check_all(&self.columns, self.loader.on_error)?;
        self.decode.check()?;
        let follows = self.columns.iter().position(|column| column.kind.follows());
        if let (Some(number), true) = (follows, self.cache.presize.is_some()) {
            let kind = self.columns[number].kind.name();
            let problem = format!(
                "is {kind}, but cache.presize resizes images before the chain, and such columns \
                 would not follow; remove cache.presize, and resize in the chain"
            );
            return Err(Error::config(format!("column[{number}].kind"), problem));
        }
        self.cache.check(&self.decode)
    }
}

/// Maximum of `decode.hardware_group`. A call with this many images takes more than 0.1 s on every
/// GPU.
const MOST_HARDWARE_GROUP: usize = 1024;

/// Maximum size in bytes: more than any machine has, and small enough that sums of such sizes fit
/// 64 bits.
const MOST_BYTES: u64 = 1 << 60;

fn check_bytes(key: &str, bytes: u64) -> Result<()> {
    if bytes > MOST_BYTES {
        let problem = format!("must be at most {MOST_BYTES} bytes (1048576 TiB), is {bytes}");
        return Err(Error::config(key, problem));
    }
    Ok(())
}

impl CacheSettings {
    fn check(&self, decode: &DecodeSettings) -> Result<()> {
        for (key, bytes) in [
            ("cache.encoded", self.encoded),
            ("cache.decoded", self.decoded),
            ("cache.device", self.device),
            ("cache.row_index", self.row_index),
        ] {
            if bytes == Some(0) && key != "cache.row_index" {
                let problem = "must be at least 1, is 0; leave it out for no cache";
                return Err(Error::config(key, problem));
            }
            check_bytes(key, bytes.unwrap_or(0))?;
        }
        if self.decoded.is_some() && decode.prescale {
            let problem = "stores images at full size, but decode.prescale reduces them; remove one of the two";
            return Err(Error::config("cache.decoded", problem));
        }
        // Gray is computed from the stored colours.
        let is_stored = matches!(decode.pixels, PixelFormat::U8 | PixelFormat::U8x3);
        if self.decoded.is_some() && !is_stored {
            let problem = format!(
                "stores images in u8x3 and u8, but decode.pixels is {}; remove cache.decoded, or use \
                 cache.encoded",
                decode.pixels.name()
            );
            return Err(Error::config("cache.decoded", problem));
        }
        match self.presize {
            Some(pixels) if self.decoded.is_some() => Resize::shorter(pixels)
                .check()
                .map_err(|error| Error::config("cache.presize", error.problem)),
            Some(_) => {
                let problem = "resizes images for the decoded cache, but there is none; set cache.decoded too";
                Err(Error::config("cache.presize", problem))
            }
            None => Ok(()),
        }
    }
}

impl DecodeSettings {
    /// Checks that the settings for JPEGs have an effect: that the sample's image, or a view of a
    /// field, can be a JPEG.
    pub(in crate::plan) fn check_jpegs(&self, views: &[View]) -> Result<()> {
        let of_fields = views.iter().filter(|view| view.field.is_some());
        let mut of_fields = of_fields.map(|view| view.pixels.unwrap_or_default());
        if !self.pixels.is_floats() || of_fields.any(|pixels| !pixels.is_floats()) {
            return Ok(());
        }
        let keys = [("prescale", self.prescale), ("jpeg", self.jpeg != JpegDecoder::Auto)];
        let Some((key, _)) = keys.iter().find(|it| it.1) else { return Ok(()) };
        let problem = format!(
            "is for JPEGs, which cannot be decoded to {} pixels (decode.pixels); remove \
             decode.{key}",
            self.pixels.name()
        );
        Err(Error::config(format!("decode.{key}"), problem))
    }

    fn check(&self) -> Result<()> {
        if self.routes.is_empty() {
            let names = Route::ALL.map(Route::name).join(", ");
            let problem = format!("is empty; name at least one of {names}");
            return Err(Error::config("decode.routes", problem));
        }
        for (number, route) in self.routes.iter().enumerate() {
            if self.routes[..number].contains(route) {
                let key = format!("decode.routes[{number}]");
                let problem = format!("{} is already in this list; remove it here", route.name());
                return Err(Error::config(key, problem));
            }
        }
        let takes_background = matches!(self.pixels, PixelFormat::U8 | PixelFormat::U8x3);
        if self.background.is_some() && !takes_background {
            let problem = format!(
                "is the colour under transparent images that are decoded to u8 or u8x3, but \
                 decode.pixels is {}; remove decode.background, or change decode.pixels",
                self.pixels.name()
            );
            return Err(Error::config("decode.background", problem));
        }
        let on_gpu = [
            ("routes", self.routes != Self::default().routes),
            ("max_cpu_threads", self.max_cpu_threads.is_some()),
            ("hardware_group", self.hardware_group.is_some()),
        ];
        let without_effect = on_gpu.iter().find(|it| it.1 && self.pixels.is_only_on_cpu());
        if let Some((key, _)) = without_effect {
            let problem = format!(
                "is for decoding on a GPU, but images are decoded on the CPU, because \
                 decode.pixels is {}; remove decode.{key}",
                self.pixels.name()
            );
            return Err(Error::config(format!("decode.{key}"), problem));
        }
        if self.max_cpu_threads == Some(0) {
            let problem = "must be at least 1, is 0; leave it out for no limit";
            return Err(Error::config("decode.max_cpu_threads", problem));
        }
        if let Some(group) = self.hardware_group
            && !(1..=MOST_HARDWARE_GROUP).contains(&group)
        {
            let problem = format!("must be 1 to {MOST_HARDWARE_GROUP}, is {group}");
            return Err(Error::config("decode.hardware_group", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageSettings;

    /// Sums of the footprint's rows must fit 64 bits.
    #[test]
    fn absurd_byte_and_pixel_counts_are_refused() {
        let key = |settings: Settings| match settings.check() {
            Err(Error::Config(error)) => error.key,
            other => panic!("{other:?}"),
        };
        let cache = |cache| Settings { cache, ..Settings::default() };
        let storage = |storage| Settings { storage, ..Settings::default() };
        let most = Some(1 << 60);
        let fits = CacheSettings {
            encoded: most,
            decoded: most,
            presize: Some(32767),
            device: most,
            row_index: most,
        };
        cache(fits.clone()).check().unwrap();
        assert_eq!(
            key(cache(CacheSettings { encoded: Some((1 << 60) + 1), ..fits })),
            "cache.encoded"
        );
        assert_eq!(key(cache(CacheSettings { decoded: Some(u64::MAX), ..fits })), "cache.decoded");
        for presize in [0, 32768, u32::MAX] {
            let settings = cache(CacheSettings { presize: Some(presize), ..fits });
            assert_eq!(key(settings), "cache.presize");
        }
        let default = StorageSettings::default;
        let settings = storage(StorageSettings { read_ahead: u64::MAX, ..default() });
        assert_eq!(key(settings), "storage.read_ahead");
        let settings = storage(StorageSettings { cache: u64::MAX, ..default() });
        assert_eq!(key(settings), "storage.cache");
    }

    #[test]
    fn defaults_pass_and_invalid_values_are_named() {
        let mut settings = Settings::default();
        settings.check().unwrap();
        (settings.loader.rank, settings.loader.world_size) = (Some(2), Some(2));
        let refused = |settings: &Settings| match settings.check() {
            Err(Error::Config(error)) => error,
            other => panic!("{other:?}"),
        };
        let error = refused(&settings);
        assert_eq!(error.key, "loader.rank");
        // The message contains both values, which are both 2.
        assert_eq!(error.problem.matches('2').count(), 2, "{error}");
        assert!(error.problem.contains("loader.world_size"), "{error}");
        settings.loader = LoaderSettings { batch_size: 0, ..Default::default() };
        let error = refused(&settings);
        assert_eq!(error.key, "loader.batch_size");
        assert!(error.problem.contains('0') && error.problem.contains('1'), "{error}");
    }
}
