//! Plans: [`Plan::new`] resolves a chain and settings. A [`Plan`] tells where each operator runs,
//! which window of each image is decoded, which kernels are launched and how much memory the loader
//! needs. It contains no `auto` placement.
//!
//! A plan needs no GPU: `feedwater plan` works on a machine without CUDA.

use std::sync::Arc;

use feedwater_insight::model::slots;

use crate::error::{Asked, Error, Result};
use crate::footprint::{Available, Footprint, Memory};
use crate::geometry::Size;
use crate::op::{Chain, ChainStep, Placement};
use crate::tensor::{DType, TensorShape};

mod available;
pub(crate) mod bounds;
pub(crate) mod budget;
pub(crate) mod column;
pub(crate) mod counts;
pub(crate) mod device;
mod device_choice;
pub(crate) mod device_facts;
mod device_files;
pub(crate) mod device_pick;
mod display;
pub(crate) mod facts;
pub(crate) mod mask;
mod memory;
pub(crate) mod need;
pub(crate) mod offload;
pub(crate) mod route;
mod row_index;
pub(crate) mod sample;
mod settings;
pub(crate) mod shard;
mod shard_from;
pub(crate) mod shuffle;
pub(crate) mod stage;
pub(crate) mod step;
mod values;
pub(crate) mod view;
mod windows;

pub use crate::field::{CellKind, DefaultValue, Pick, TooLong};
pub use device_choice::DeviceChoice;
pub use device_files::DeviceFilesPlan;
pub(crate) use mask::MaskPlan;
pub(crate) use memory::{PAIR_BYTES, PART_BYTES, RECORD_BYTES};
pub(crate) use route::AssumedCost;
pub use route::Route;
pub(crate) use route::{DecoderMemory, FeedwaterCall, MeasuredMemory, PROBLEM_BYTES};
pub use row_index::RowIndexGain;
pub use settings::{
    BoxFormat, CacheSettings, ColumnKind, ColumnSettings, DecodeSettings, Limits, LoaderSettings,
    OutputSettings, Settings, TargetSettings,
};
pub use shard_from::ShardFrom;
pub(crate) use stage::{BatchStage, MaskColumn};
pub use values::{AutoCount, LastBatch, OnError};

pub(crate) use bounds::Bounds;
pub(crate) use budget::Reduction;
pub(crate) use column::{ColumnPlan, ColumnRole};
pub(crate) use counts::Counts;
pub(crate) use device::{DevicePlan, DeviceSplit, LAUNCH_BLOCKS, LaunchBlock, RoutePlan, rows};
pub(crate) use device_facts::DeviceFacts;
pub(crate) use device_pick::DevicePick;
pub(crate) use facts::{Facts, ScannedSample};
pub(crate) use need::{SampleMemory, SampleRoom};
pub(crate) use offload::Offload;
pub(crate) use sample::SamplePlan;
pub(crate) use shard::{Environment, Shard};
pub(crate) use shuffle::Shuffle;
pub(crate) use step::{Place, PlannedStep};
use step::{planned_steps, refuse_several_outputs, unequal_sizes};
pub(crate) use view::{ViewGroup, ViewPlan};

/// Resolved plan: what runs where, and how much memory it takes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Settings of the user.
    pub settings: Settings,
    /// Device on which batches are produced, with the reason.
    pub runs_on: DevicePick,
    /// Shard that this loader reads.
    pub shard: Shard,
    /// Order of the samples of an epoch.
    pub shuffle: Shuffle,
    /// Where images are decoded.
    pub decode: Place,
    /// Operators in order: those on the CPU, then those on the GPU.
    pub steps: Vec<PlannedStep>,
    /// Shape of the largest batch that can occur: with `last_batch = "partial"` at most all samples
    /// of the shard, else `loader.batch_size`.
    pub shape: TensorShape,
    /// Columns of a batch: images, labels, soft targets if there are any, views, and columns that
    /// are made from fields.
    pub columns: Arc<[ColumnPlan]>,
    /// Views: further outputs of the images of samples.
    pub views: Vec<ViewPlan>,
    /// Whether the chain reads a stored image instead of rows of the decoder, because several
    /// chains share the image. On a device, the chains read the pixels of one page.
    pub(crate) reads_image: bool,
    /// Whether the fields of samples are read.
    pub(crate) reads_fields: bool,
    /// Batch stage: soft targets and batch operators, which process finished batches. `None` if
    /// there are neither.
    pub stage: Option<BatchStage>,
    /// Range of the number of workers.
    pub workers: Bounds,
    /// Maximum number of prefetched batches, for which memory is allocated: `loader.prefetch`, or
    /// less under a memory limit.
    pub prefetch: usize,
    /// Range of the number of prefetched batches, at most `prefetch`.
    pub ahead_batches: Bounds,
    /// Host memory for samples: each worker's share, and memory for samples that need more.
    pub room: SampleRoom,
    /// Number of samples to prefetch from a network, and the maximum size of each, in bytes. `None`
    /// if samples are not prefetched.
    pub ahead: Option<(usize, u64)>,
    /// Possible divisions of work between CPU and GPU. The first one has the least GPU work, and
    /// the last one is the planned one. If there are several, the loader chooses one while it runs.
    pub offloads: Vec<Offload>,
    /// GPU part of the plan, `None` if nothing runs on the GPU. Batches are in GPU memory if there
    /// is a GPU part.
    pub device: Option<DevicePlan>,
    /// Predicted effect of row indexes on decoding JPEGs on the CPU. `None` if no scanned image can
    /// have a row index.
    pub row_index: Option<RowIndexGain>,
    /// Maximum size of the cache of row indexes, in bytes: `cache.row_index`, or the default that
    /// the plan computes. 0 without row indexes.
    pub row_index_bytes: u64,
    /// Decode routes that the GPU supports but that are not used, with the reason.
    pub dropped_routes: Vec<(Route, String)>,
    /// Counts that memory limits reduced.
    pub reductions: Vec<Reduction>,
    /// Predicted memory: one row for each kind of buffer.
    pub footprint: Footprint,
    /// Host memory that was available to this process when the plan was made. `None` if unknown.
    pub available: Option<Available>,
}

impl Plan {
    /// Resolves a chain and settings for a source and a machine. Every error names the key and
    /// suggests a change.
    pub fn new(chain: &Chain, settings: &Settings, facts: &Facts) -> Result<Self> {
        settings.check()?;
        settings.decode.check_jpegs(chain.views())?;
        let (decode, places) = place(chain, &settings.decode, &facts.device)?;
        let format = settings.decode.pixels;
        let (steps, size, channels) = planned_steps(chain, places, format, "chain")?;
        refuse_several_outputs(&steps)?;
        let only_views = steps.is_empty() && !chain.views().is_empty();
        let size = match size {
            None if only_views => Size::default(),
            size => size.ok_or_else(|| unequal_sizes("chain"))?,
        };
        let dtype = settings.output.dtype;
        let shard = Shard::resolve(&settings.loader, &facts.environment)?;
        let shape = TensorShape {
            batch: largest_batch(&settings.loader, &shard, facts.samples),
            width: size.width,
            height: size.height,
            dtype,
            layout: settings.output.layout,
            channels,
        };
        let has_field_images = chain.views().iter().any(|view| view.field.is_some());
        let reads_fields = !settings.columns.is_empty() || has_field_images;
        let mut plan = Self {
            settings: settings.clone(),
            runs_on: facts.pick.clone(),
            shard,
            shuffle: Shuffle::new(&settings.loader, facts)?,
            decode,
            steps,
            shape,
            columns: Arc::new([]),
            views: Vec::new(),
            reads_fields,
            reads_image: false,
            stage: BatchStage::new(chain, settings, facts)?,
            // This value is preliminary and is replaced below, when the number of GPU threads is
            // known.
            workers: Bounds::fixed(1),
            prefetch: 1,
            ahead_batches: Bounds::fixed(1),
            ahead: facts.remote.then(|| {
                let largest = facts.largest_bytes.min(settings.limits.max_file_bytes).max(1);
                let with_fields = facts.largest_with_fields.filter(|_| reads_fields);
                let largest = largest.max(with_fields.unwrap_or(0));
                (settings.storage.samples_ahead(largest), largest)
            }),
            room: SampleRoom::default(),
            offloads: Vec::new(),
            device: None,
            row_index: None,
            row_index_bytes: settings.cache.row_index.unwrap_or(0),
            dropped_routes: match &facts.device {
                DeviceFacts::Gpu { dropped, .. } => dropped.clone(),
                DeviceFacts::None(_) => Vec::new(),
            },
            reductions: Vec::new(),
            footprint: Footprint::default(),
            available: facts.available.clone(),
        };
        if plan.has_floats() && dtype == DType::U8 {
            let problem = format!("is u8, but {}", plan.source_of_floats(""));
            return Err(Error::config("output.dtype", problem));
        }
        if let Some(problem) = plan.overflow() {
            return Err(Error::config("output.dtype", problem));
        }
        plan.views = ViewPlan::all(chain.views(), &plan, &facts.device)?;
        let has_views = plan.views.iter().any(|view| view.field.is_none());
        let shares = !plan.uses_gpu() || plan.has_device_views();
        plan.reads_image = has_views && plan.has_images() && shares;
        plan.prefetch = bounds::most_ahead(settings.loader.prefetch, plan.output_bytes());
        plan.ahead_batches = Bounds::ahead(settings.loader.prefetch, plan.prefetch);
        if !plan.uses_gpu() && plan.runs_on.gpu.is_some() {
            plan.runs_on = DevicePick::cpu(match format.is_only_on_cpu() {
                true => "images of other pixel formats than u8x3 are processed on the cpu",
                false => "every operator is placed on the cpu",
            });
        }
        let memory = if plan.uses_gpu() { Memory::Device } else { Memory::Host };
        let classes = plan.stage.as_ref().map(|stage| stage.classes).filter(|&it| it > 0);
        plan.columns = ViewPlan::columns(&plan, classes, memory).into();
        let routes = plan.routes(&facts.device);
        plan.offloads = Offload::all(&plan, chain, &routes);
        let mut device = plan.uses_gpu().then(|| DevicePlan::new(&plan, facts, routes.clone()));
        plan.workers = Bounds::workers(settings, facts, device.as_ref())?;
        if let Some(device) = &device
            && settings.cache.decoded.is_some()
            && !device.has(Route::Cpu)
        {
            let problem = "needs the route cpu to upload cached images, but decode.routes does not list cpu; add cpu, \
                           or remove cache.decoded";
            return Err(Error::config("cache.decoded", problem));
        }
        if let Some(device) = &mut device {
            device.files =
                DeviceFilesPlan::new(&plan, &routes, (facts.samples, facts.mean_file()))?;
        }
        plan.device = device;
        plan.room = plan.sample_room(facts);
        let waiting_tables = plan.waiting_tables();
        if let Some(device) = &mut plan.device {
            device.limit_tables(waiting_tables);
        }
        plan.fit(facts)?;
        plan.row_index = RowIndexGain::of(&plan, facts);
        plan.footprint = memory::footprint(&plan, facts);
        plan.add_default_row_indexes(facts);
        plan.room.unplanned = if facts.samples > 0 { plan.unplanned_room() } else { 0 };
        Ok(plan)
    }

    /// Adds row indexes if they are worth their memory and `cache.row_index` is not set. Uses only
    /// memory that is left under the limits.
    fn add_default_row_indexes(&mut self, facts: &Facts) {
        let cache = &self.settings.cache;
        let Some(gain) = self.row_index else { return };
        if cache.row_index.is_none() && cache.decoded.is_none() {
            let large = self.settings.limits.large_image_memory;
            self.row_index_bytes = gain.default_bytes(self.host_bytes_left().saturating_sub(large));
            self.footprint = memory::footprint(self, facts);
        }
    }

    /// Whether anything runs on the GPU. Batches are then in GPU memory.
    pub fn uses_gpu(&self) -> bool {
        let on_gpu = self.steps.iter().any(|step| step.place == Place::Gpu);
        self.decode == Place::Gpu || on_gpu || self.has_device_views()
    }

    /// Number of slots in the ring of batches: the prefetched batches plus the consumer's batch.
    pub fn slots(&self) -> usize {
        slots(self.prefetch)
    }

    /// Footprint note for the output slots.
    fn slots_note(&self) -> String {
        format!("{}, {} ahead + 1", self.shape, self.prefetch)
    }

    /// Returns the column with this role, if there is one.
    pub(crate) fn column(&self, role: ColumnRole) -> Option<&ColumnPlan> {
        self.columns.iter().find(|column| column.role == role)
    }

    /// Columns in this kind of memory, in the order of their [`slot`](ColumnPlan::slot).
    pub(crate) fn columns_in(&self, memory: Memory) -> impl Iterator<Item = &ColumnPlan> {
        self.columns.iter().filter(move |column| column.memory == memory)
    }

    /// Decode routes in use. If decoding is on the GPU: routes of the settings that the GPU
    /// supports. Otherwise `cpu`.
    fn routes(&self, device: &DeviceFacts) -> Vec<Route> {
        match (self.decode, device) {
            (Place::Gpu, DeviceFacts::Gpu { routes: Ok(offered), .. }) => Route::ALL
                .into_iter()
                .filter(|route| self.settings.decode.routes.contains(route))
                .filter(|route| !route.on_device() || offered.contains(route))
                .collect(),
            _ => vec![Route::Cpu],
        }
    }

    /// Number of leading operators that run on the CPU.
    pub fn cpu_steps(&self) -> usize {
        self.steps.iter().take_while(|step| step.place == Place::Cpu).count()
    }
}

/// Number of samples in the largest possible batch. `samples` is the size of the set, 0 if unknown.
fn largest_batch(loader: &LoaderSettings, shard: &Shard, samples: u64) -> usize {
    let all = samples.div_ceil(shard.world).max(1);
    match usize::try_from(all) {
        Ok(all) if loader.last_batch == LastBatch::Partial && samples > 0 => {
            loader.batch_size.min(all)
        }
        _ => loader.batch_size,
    }
}

/// Resolves every `auto` placement. Rejects chains that would transfer data to the GPU twice.
fn place(
    chain: &Chain,
    decode: &DecodeSettings,
    device: &DeviceFacts,
) -> Result<(Place, Vec<Place>)> {
    let mut asked = vec![("decode".to_string(), "decode", decode.placement)];
    for (number, step) in chain.steps().iter().enumerate() {
        let (key, name) = (format!("chain[{number}]"), step.operator.name());
        asked.push((key.clone(), name, own_placement(step, &key)?));
    }
    if decode.pixels.is_only_on_cpu() {
        let Some((key, name, _)) = asked.iter().find(|it| it.2 == Placement::Gpu) else {
            return Ok((Place::Cpu, vec![Place::Cpu; chain.steps().len()]));
        };
        let problem = format!(
            "is gpu, but {name} runs on the cpu only, because decode.pixels is {}; write cpu or auto",
            decode.pixels.name()
        );
        return Err(Error::config(format!("{key}.placement"), problem));
    }
    let route = match device {
        DeviceFacts::None(why) => {
            if let Some((key, name, _)) = asked.iter().find(|it| it.2 == Placement::Gpu) {
                let words = format!("places {name} on the GPU");
                return Err(not_there("a gpu", why, &format!("{key}.placement"), &words));
            }
            return Ok((Place::Cpu, vec![Place::Cpu; chain.steps().len()]));
        }
        DeviceFacts::Gpu { routes: Err(why), .. } => Err(why.clone()),
        DeviceFacts::Gpu { routes: Ok(offered), dropped, .. } => {
            any_route(&decode.routes, offered, dropped)
        }
    };
    let last_cpu = asked.iter().rposition(|it| it.2 == Placement::Cpu);
    let mut places = Vec::new();
    for (number, (key, name, placement)) in asked.iter().enumerate() {
        let before_cpu = last_cpu.is_some_and(|last| number < last);
        places.push(match placement {
            Placement::Cpu => Place::Cpu,
            Placement::Auto if before_cpu => Place::Cpu,
            Placement::Auto if number == 0 && route.is_err() => Place::Cpu,
            Placement::Auto => Place::Gpu,
            Placement::Gpu if before_cpu => {
                let (cpu_key, cpu_name, _) =
                    &asked[last_cpu.expect("an operator placed on the CPU follows this one")];
                let way_out = match last_cpu.and_then(|last| cpu_only(chain, last)) {
                    Some(why) => format!("{cpu_name} {why}, so put {name} on cpu"),
                    None => format!("put {cpu_name} on gpu or {name} on cpu"),
                };
                let problem = format!(
                    "{cpu_name} ({cpu_key}) is on cpu, but follows {name} ({key}), which is on \
                     gpu; data can be transferred to the gpu only once: {way_out}"
                );
                return Err(Error::config("chain", problem));
            }
            Placement::Gpu => Place::Gpu,
        });
    }
    if let (Place::Gpu, Err(why), DeviceFacts::Gpu { dropped, .. }) = (places[0], &route, device)
        && !dropped.is_empty()
    {
        let problem = format!(
            "is gpu, but {why}; raise the limit that is too small, allow another route, or write auto or cpu"
        );
        return Err(Error::config("decode.placement", problem));
    }
    if let (Place::Gpu, Err(why)) = (places[0], route) {
        return Err(not_there("a decode route", &why, "decode.placement", "asks for it"));
    }
    let decode = places.remove(0);
    Ok((decode, places))
}

/// Placement of a step. An operator without CUDA source code must run on the CPU.
fn own_placement(step: &ChainStep, key: &str) -> Result<Placement> {
    match (step.operator.kinds().not_on_device(), step.placement) {
        (Some(why), Placement::Gpu) => {
            let name = step.operator.name();
            let problem = format!("is gpu, but {name} {why}; write cpu or auto");
            Err(Error::config(format!("{key}.placement"), problem))
        }
        (Some(_), Placement::Auto) => Ok(Placement::Cpu),
        (_, asked) => Ok(asked),
    }
}

/// Reason why no kernel can execute step number `place`, where decoding is step 0. `None` if a
/// kernel can.
fn cpu_only(chain: &Chain, place: usize) -> Option<&'static str> {
    chain.steps()[place.checked_sub(1)?].operator.kinds().not_on_device()
}

/// Error for a placement on hardware that this machine lacks.
pub(in crate::plan) fn not_there(what: &'static str, why: &str, key: &str, words: &str) -> Error {
    let reason = format!("{why}, but {key} {words}; write cpu or auto");
    let asked = Some(Box::new(Asked { key: key.into(), at: None }));
    Error::Unavailable { what, reason, asked }
}

/// Checks that the GPU supports at least one allowed route.
fn any_route(
    allowed: &[Route],
    offered: &[Route],
    dropped: &[(Route, String)],
) -> Result<(), String> {
    if allowed.iter().any(|route| offered.contains(route)) {
        return Ok(());
    }
    let names =
        |routes: &[Route]| routes.iter().map(|route| route.name()).collect::<Vec<_>>().join(", ");
    let offers = match offered.is_empty() {
        true => "no other route".into(),
        false => format!("{}: allow one of these", names(offered)),
    };
    let mut why =
        format!("decode.routes allows {}, but the device supports {offers}", names(allowed));
    for (route, reason) in dropped {
        why += &format!("; {} is not used: {reason}", route.name());
    }
    Err(why)
}
