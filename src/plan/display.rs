//! Text form of a plan, for users.

use std::fmt;

use super::{
    AutoCount, ColumnRole, DeviceSplit, Offload, Place, Plan, PlannedStep, RoutePlan, ViewPlan,
};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8}decode", self.decode.name())?;
        match &self.device {
            Some(device) if self.decode == Place::Gpu => {
                let routes: Vec<_> = device.routes.iter().map(RoutePlan::to_string).collect();
                writeln!(f, " by {}", routes.join(", "))?;
            }
            _ => writeln!(f)?,
        }
        for step in &self.steps {
            writeln!(f, "{:<8}{:?}", step.place.name(), step.operator)?;
        }
        let mut steps = self.steps.iter().enumerate().rev();
        let reason =
            |(number, step): (usize, &PlannedStep)| Some((number, step.kinds.not_on_device()?));
        if self.pixel_format().is_only_on_cpu() {
            let (name, words) =
                (self.pixel_format().name(), "so decoding and all operators are on the cpu");
            writeln!(f, "{:<8}decode.pixels is {name}; {words}", "reason")?;
        } else if let Some((last, why)) = steps.find_map(reason) {
            let name = self.steps[last].operator.name();
            let before = "so decoding and the operators before it are on the cpu too";
            writeln!(f, "{:<8}{name} (chain[{last}]) {why}; {before}", "reason")?;
        }
        let last = if self.uses_gpu() { Place::Gpu } else { Place::Cpu };
        if self.has_images() {
            writeln!(f, "{:<8}output {}", last.name(), self.shape)?;
        }
        for (number, view) in self.views.iter().enumerate() {
            let operators: Vec<_> =
                view.plan.steps.iter().map(|step| format!("{:?}", step.operator)).collect();
            let note = self.column(ColumnRole::View(number)).map(|it| it.note(self.shape.batch));
            let (name, note) = (view.name.escape_debug(), note.unwrap_or_default());
            let place = view.place.name();
            writeln!(f, "{place:<8}view {name}: {}; output {note}", operators.join(", "))?;
            if let Some(why) = view.on_cpu.as_ref().filter(|_| self.uses_gpu()) {
                writeln!(f, "{:<8}view {name} is on the cpu: {why}", "reason")?;
            }
        }
        if let Some(stage) = &self.stage {
            for operator in &stage.operators {
                writeln!(f, "{:<8}batch {operator:?}", last.name())?;
            }
        }
        if let Some(targets) = self.column(ColumnRole::Target) {
            writeln!(f, "{:<8}targets {}", last.name(), targets.note(self.shape.batch))?;
        }
        if let Some(device) = &self.device {
            self.fmt_kernels(f, device.planned(), ("", "chain"))?;
            for view in &device.views {
                let (number, ViewPlan { name, plan, .. }) = (view.number, &self.views[view.number]);
                let place = format!("view {}: ", name.escape_debug());
                let list = format!("view[{number}].chain");
                plan.fmt_kernels(f, &view.split, (&place, &list))?;
            }
        }
        if let [others @ .., planned] = &self.offloads[..]
            && !others.is_empty()
        {
            let others: Vec<_> = others.iter().map(Offload::to_string).collect();
            writeln!(
                f,
                "{:<8}on the gpu {planned}; autotuning may choose {} instead",
                "auto",
                others.join(", ")
            )?;
        }
        let chosen = [
            ("workers", self.settings.loader.num_workers, self.workers),
            ("prefetch", self.settings.loader.prefetch, self.ahead_batches),
        ];
        for (name, _, bounds) in chosen.iter().filter(|it| it.1 == AutoCount::Auto) {
            writeln!(f, "{:<8}{name} {bounds}", "auto")?;
        }
        let (setting, planned) = (self.settings.cache.row_index, self.row_index_bytes);
        if let Some(note) = self.row_index.and_then(|gain| gain.note(setting, planned)) {
            writeln!(f, "{:<8}{note}", "index")?;
        }
        for (route, why) in &self.dropped_routes {
            writeln!(f, "{:<8}{} is not used: {why}", "route", route.name())?;
        }
        for reduction in &self.reductions {
            writeln!(f, "{:<8}{reduction}", "less")?;
        }
        writeln!(f, "{:<8}{}", "device", self.runs_on)?;
        writeln!(f, "{:<8}{}", "order", self.order_note())?;
        writeln!(f, "{:<8}{}", "shard", self.shard)?;
        writeln!(f)?;
        self.footprint.fmt(f)?;
        self.fmt_available(f)
    }
}

impl Plan {
    /// Writes the kernels of a chain, and the first operator that the fused kernel does not
    /// execute. `place` names the chain, and `list` is its key.
    fn fmt_kernels(
        &self,
        f: &mut fmt::Formatter<'_>,
        DeviceSplit { first, chain }: &DeviceSplit,
        (place, list): (&str, &str),
    ) -> fmt::Result {
        for name in chain.names() {
            writeln!(f, "{:<8}{place}{name}", "kernel")?;
        }
        if let Some((number, why)) = chain.unfused {
            let number = first + number;
            let name = self.steps[number].operator.name();
            writeln!(f, "{:<8}{name} ({list}[{number}]) {why}", "program")?;
        }
        Ok(())
    }
}

impl fmt::Display for RoutePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.route.name())?;
        if self.decoders > 1 {
            write!(f, " x{}", self.decoders)?;
        }
        Ok(())
    }
}
