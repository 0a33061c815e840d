//! `plan`: what a pipeline file comes to, without running it.

use clap::Args;
use feedwater::config::Pipeline;
use feedwater::footprint::{Footprint, Memory};
use feedwater::plan::Plan;
use serde_json::{Value, json};

use super::{Failure, PipelineOptions, print, print_json};

/// Shows where each operator runs and how much memory that takes; needs no GPU
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater plan pipeline.toml")]
pub struct Options {
    #[command(flatten)]
    pipeline: PipelineOptions,
    /// Print the pipeline file with every setting written out instead
    #[arg(long, conflicts_with = "json")]
    settings: bool,
    /// Print the plan as one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn main(options: &Options) -> Result<(), Failure> {
    if options.settings {
        let text = Pipeline::from_file(&options.pipeline.file)?.to_toml()?;
        return print(text.trim_end());
    }
    let plan = options.pipeline.builder()?.plan()?;
    match options.json {
        true => print_json(&describe(&plan)),
        false => print(plan.to_string().trim_end()),
    }
}

fn describe(plan: &Plan) -> Value {
    let steps = plan.steps.iter().map(|step| {
        json!({
            "op": step.operator.name(),
            "place": step.place,
            "settings": format!("{:?}", step.operator),
        })
    });
    json!({
        "decode": plan.decode,
        "chain": steps.collect::<Vec<_>>(),
        "output": {
            "shape": plan.shape.dims(),
            "dtype": plan.shape.dtype,
            "layout": plan.shape.layout,
            "bytes": plan.shape.bytes(),
        },
        "footprint": rows(&plan.footprint),
        "host_bytes": plan.footprint.total_bytes(Memory::Host),
        "pinned_bytes": plan.footprint.total_bytes(Memory::Pinned),
        "device_bytes": plan.footprint.total_bytes(Memory::Device),
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
