//! Nearest known name of a misspelt one.

/// Returns the known name with the fewest edits (insert, delete, replace, swap neighbours), if these are at most a third of the
/// letters, or one.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let (distance, best) = known
        .iter()
        .map(|known| (strsim::osa_distance(name, known), *known))
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
        assert_eq!(nearest("directory", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
