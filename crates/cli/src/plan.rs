//! `plan`: shows how a pipeline would run, without running it.

use clap::Args;
use feedwater::footprint::{Footprint, Memory};
use feedwater::internals::config::Pipeline;
use feedwater::internals::plan::DevicePlan;
use feedwater::internals::source::exclusion_lines;
use feedwater::loader::DeviceChoice;
use feedwater::plan::Plan;
use feedwater::source::Exclusion;
use serde_json::{Value, json};

use super::{CommandError, PipelineOptions, print, print_json, print_lines, tell};

/// Shows on which device each operator runs and how much memory the pipeline needs. Does not need a
/// GPU
///
/// With --device cuda, the plan is for a machine with a GPU, even if this machine has none.
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater plan pipeline.toml --device cuda")]
pub struct Options {
    #[command(flatten)]
    pipeline: PipelineOptions,
    /// Print the pipeline file with the values of all settings, instead of the plan
    #[arg(long, conflicts_with = "json")]
    settings: bool,
    /// Print the CUDA source of the kernel that a GPU would run, instead of the plan
    #[arg(long, conflicts_with_all = ["json", "settings"])]
    cuda: bool,
    /// Print the plan as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), CommandError> {
    if options.settings {
        let text = Pipeline::from_file(&options.pipeline.file)?.to_toml()?;
        return print_lines(text.trim_end());
    }
    if options.cuda {
        return print_lines(kernel(&options.pipeline)?.trim_end());
    }
    let builder = options.pipeline.builder()?;
    let source = builder.source();
    let plan = builder.plan()?;
    for warning in source.warnings() {
        tell(format!("warning: {warning}"));
    }
    if options.json {
        let mut plan = describe(&plan, &source.excluded());
        plan["source"] = source.describe().into();
        return print_json(&plan);
    }
    print(format!("source    {}", source.describe()))?;
    print_lines(plan.to_string().trim_end())?;
    exclusion_lines(&source.excluded())
        .iter()
        .try_for_each(|line| print(format!("excluded  {line}")))
}

/// Returns the CUDA source of the kernels that a GPU would run.
fn kernel(options: &PipelineOptions) -> Result<String, CommandError> {
    let on_gpu = options.builder()?.device(DeviceChoice::Gpu(0)).plan()?;
    let sources = |device: DevicePlan| {
        let views = device.views.iter().map(|view| &view.split);
        let chains = std::iter::once(device.planned()).chain(views);
        chains.flat_map(|split| split.chain.sources()).collect::<Vec<_>>().join("\n")
    };
    on_gpu.device.map(sources).ok_or_else(|| {
        let text = "there is no kernel: every placement in the file is cpu; write auto or gpu";
        CommandError::Failed(text.into())
    })
}

fn describe(plan: &Plan, excluded: &[Exclusion]) -> Value {
    let views = plan.views.iter().map(|view| {
        let shape = &view.plan.shape;
        let dims = [vec![shape.batch], view.dims()].concat();
        json!({
            "name": view.name,
            "place": view.place,
            "count": view.count,
            "chain": steps_of(&view.plan),
            "shape": dims,
            "dtype": shape.dtype,
            "layout": shape.layout,
        })
    });
    let stage = plan.stage.as_ref().map(|stage| {
        let operators = stage
            .operators
            .iter()
            .map(|operator| json!({ "op": operator.name(), "settings": format!("{operator:?}") }));
        json!({ "operators": operators.collect::<Vec<_>>(), "classes": stage.classes })
    });
    let dropped =
        plan.dropped_routes.iter().map(|(route, why)| json!({ "route": route, "reason": why }));
    let reductions = plan.reductions.iter().map(|it| {
        json!({
            "name": it.name,
            "count": it.count,
            "instead_of": it.instead_of,
            "limits": it.limits,
        })
    });
    json!({
        "decode": plan.decode,
        "chain": steps_of(plan),
        "output": {
            "shape": plan.shape.dims(),
            "dtype": plan.shape.dtype,
            "layout": plan.shape.layout,
            "bytes": plan.shape.bytes(),
        },
        "views": views.collect::<Vec<_>>(),
        "batch_stage": stage,
        "workers": plan.workers,
        "prefetch": plan.prefetch,
        "ahead_batches": plan.ahead_batches,
        "offloads": plan.offloads,
        "order": plan.shuffle,
        "repeats": plan.settings.loader.repeats,
        "runs_on": plan.runs_on,
        "shard": plan.shard,
        "excluded": excluded,
        "device": plan.device.as_ref().map(device),
        "row_index": plan.row_index,
        "row_index_bytes": plan.row_index_bytes,
        "dropped_routes": dropped.collect::<Vec<_>>(),
        "reductions": reductions.collect::<Vec<_>>(),
        "footprint": rows(&plan.footprint),
        "host_bytes": plan.footprint.total_bytes(Memory::Host),
        "pinned_bytes": plan.footprint.total_bytes(Memory::Pinned),
        "device_bytes": plan.footprint.total_bytes(Memory::Device),
        "host_bytes_to_take": plan.host_bytes_to_take(),
        "available": plan.available,
    })
}

/// The operators of a chain.
fn steps_of(plan: &Plan) -> Vec<Value> {
    let steps = plan.steps.iter().map(|step| {
        json!({
            "op": step.operator.name(),
            "place": step.place,
            "settings": format!("{:?}", step.operator),
        })
    });
    steps.collect()
}

fn device(device: &DevicePlan) -> Value {
    let routes = device.routes.iter().map(|it| {
        json!({
            "route": it.route,
            "decoders": it.decoders,
            "device_bytes": it.device_bytes,
            "pinned_bytes": it.pinned_bytes,
        })
    });
    json!({
        "kernels": device.planned().chain.names().collect::<Vec<_>>(),
        "cuts": device.splits.iter().map(|cut| cut.first).collect::<Vec<_>>(),
        "sample_bytes": device.sample_bytes(),
        "samples_per_launch": device.group,
        "images_per_hardware_call": device.hardware_group,
        "pages": device.pages,
        "encoded_bytes": device.encoded_bytes,
        "pixels_bytes": device.pixels_bytes,
        "table_bytes": device.table_bytes,
        "scratch_bytes": device.scratch_bytes,
        "uploads": device.uploads,
        "upload_bytes": device.upload_bytes,
        "routes": routes.collect::<Vec<_>>(),
    })
}

fn rows(footprint: &Footprint) -> Vec<Value> {
    footprint
        .rows
        .iter()
        .map(|row| {
            json!({
                "memory": row.memory,
                "name": row.name,
                "each_bytes": row.each_bytes,
                "count": row.count,
                "total_bytes": row.total_bytes(),
                "note": row.note,
            })
        })
        .collect()
}
