//! Choice of the next split of the work between CPU and device.

use crate::plan::Offload;
use feedwater_insight::model::{Limit, On};

use super::{NEGLIGIBLE_WAIT_SHARE, Trial};

/// Returns the split to try next, with the question that the trial of this split answers. `all`
/// lists the possible splits, the one with the least device work first.
pub(super) fn next(trials: &[Trial], all: &[Offload]) -> Option<(Offload, &'static str)> {
    let tried = |number: &usize| trials.iter().any(|it| it.choice.offload == all[*number]);
    let place = |trial: &Trial| all.iter().position(|it| *it == trial.choice.offload);
    let middle = |from: usize, to: usize| (from < to).then(|| usize::midpoint(from, to));
    let content =
        trials.iter().filter(|it| it.waits < NEGLIGIBLE_WAIT_SHARE).filter_map(place).min();
    if let Some(enough) = content {
        // The split number `enough` has the least device work of all tried splits that were
        // sufficient. So all tried splits with less device work were insufficient.
        let below = (0..enough).rev().find(tried);
        let (next, question) = match below {
            None => (middle(0, enough.min(1)), "can the CPU do everything?"),
            Some(short) => (middle(short + 1, enough), "can the CPU do more?"),
        };
        return next.map(|number| (all[number], question));
    }
    let corners = [
        (all.len().checked_sub(1), "is it better to decode on the device?"),
        (all.iter().rposition(|it| !it.decode), "is it better to decode on the CPU?"),
        (Some(0), "can the CPU do everything?"),
    ];
    let corner = corners
        .into_iter()
        .find_map(|(number, question)| Some((number.filter(|number| !tried(number))?, question)));
    if let Some((number, question)) = corner {
        return Some((all[number], question));
    }
    let best = trials.iter().max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let here = place(best)?;
    let stages = &best.model.stages;
    let on_device = matches!(best.model.capacity().first(), Some((Limit::Resource(number), _))
        if stages.iter().any(|stage| stage.detached && stage.on == On::Resource(*number)));
    if on_device {
        let below = (0..here).rev().find(tried).map_or(0, |it| it + 1);
        middle(below, here).map(|number| (all[number], "does less on the device help?"))
    } else {
        let above = (here + 1..all.len()).find(tried).unwrap_or(all.len());
        middle(here + 1, above).map(|number| (all[number], "does more on the device help?"))
    }
}
