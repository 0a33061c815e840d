//! Decode routes on the device, each timed in a loader.

use std::sync::Arc;

use feedwater::Result;
use feedwater::gpu::Device;
use feedwater::internals::config::Pipeline;
use feedwater::internals::loader::offered;
use feedwater::internals::measure::DeviceTime;
use feedwater::loader::DeviceChoice;
use feedwater::op::Placement;
use feedwater::plan::{LastBatch, Route};
use feedwater::storage::Storage;
use serde::Serialize;

/// Measurements of one route.
#[derive(Default, Serialize)]
pub struct RouteRow {
    pub route: String,
    /// Number of timed images.
    pub images: u64,
    /// Mean device time per image in seconds, between CUDA events in the decoder's stream.
    pub seconds: Option<f64>,
    /// Mean device time per megapixel, in seconds.
    pub seconds_per_megapixel: Option<f64>,
    /// Why nothing was measured.
    pub reason: Option<String>,
}

/// Measures every route on the device with about `samples` samples; images that a route does not support fall back.
pub fn measure(
    device: &Arc<Device>,
    pipeline: &Pipeline,
    storage: &Storage,
    samples: u64,
    image_megapixels: f64,
) -> Vec<RouteRow> {
    let row = |route: Route| {
        let offered = offered(device, route).map_err(|error| error.to_string()).flatten();
        let allowed = match pipeline.settings.decode.routes.contains(&route) {
            true => offered,
            false => Err(format!("decode.routes does not include {}", route.name())),
        };
        let seen = allowed.and_then(|()| {
            let time = decode(device, pipeline, storage, route, samples)
                .map_err(|error| error.to_string())?;
            let time = time.filter(|it| it.items > 0);
            time.ok_or_else(|| "no image used this route, or none could be timed".to_string())
        });
        let name = route.name().to_string();
        match seen {
            Err(why) => RouteRow { route: name, reason: Some(why), ..RouteRow::default() },
            Ok(time) => {
                let seconds = time.seconds / time.items as f64;
                RouteRow {
                    route: name,
                    images: time.items,
                    seconds: Some(seconds),
                    seconds_per_megapixel: Some(seconds / image_megapixels),
                    reason: None,
                }
            }
        }
    };
    Route::all_on_device().map(row).collect()
}

/// Returns the device time of decoding on one route.
fn decode(
    device: &Device,
    pipeline: &Pipeline,
    storage: &Storage,
    route: Route,
    samples: u64,
) -> Result<Option<DeviceTime>> {
    let choice = DeviceChoice::Gpu(device.ordinal());
    let builder = pipeline.builder_with(storage)?.device(choice).decode(Placement::Gpu);
    let builder =
        builder.routes([route]).tune(false).last_batch(LastBatch::Partial).epochs(Some(1));
    let mut loader = builder.build()?;
    let mut images = 0;
    for batch in &mut loader {
        let batch = batch?;
        if let Some(ready) = batch.ready() {
            ready.synchronize()?;
        }
        images += batch.len() as u64;
        if images >= samples {
            break;
        }
    }
    let routes = loader.profile().routes;
    Ok(routes.into_iter().find(|it| it.route == route.name()).and_then(|it| it.device))
}
