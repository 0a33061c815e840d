//! Search for the known name that is nearest to a misspelt name.

/// Returns the known name that needs the fewest edits. An edit inserts, deletes or replaces a
/// letter, or swaps neighbours. Letter case is ignored. Returns `None` if more than a third of the
/// letters must change; one edit is always allowed.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let name = name.to_lowercase();
    let (distance, best) = known
        .iter()
        .map(|known| (strsim::osa_distance(&name, &known.to_lowercase()), *known))
        .min_by_key(|&(distance, _)| distance)?;
    (distance <= most && distance < best.chars().count()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["batch", "workers", "seed"];
        assert_eq!(nearest("batchs", &known), Some("batch"));
        assert_eq!(nearest("wrokers", &known), Some("workers"));
        assert_eq!(nearest("SEED", &known), Some("seed"));
        assert_eq!(nearest("Wrokers", &known), Some("workers"));
        assert_eq!(nearest("directory", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
