//! Nearest known name of a misspelt one.

/// Returns the known name with the fewest edits, if these are at most a third of the letters, or one.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let (distance, best) = known
        .iter()
        .map(|known| (distance(name, known), *known))
        .min_by_key(|&(distance, _)| distance)?;
    (distance <= most && distance < best.chars().count()).then_some(best)
}

/// Number of edits (insert, delete, replace, swap neighbours) between two names: optimal string alignment, computed by rows.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in [
            ("", "", 0),
            ("batch", "batch", 0),
            ("batchs", "batch", 1),
            ("resise", "resize", 1),
            ("resiez", "resize", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["batch", "workers", "seed"];
        assert_eq!(nearest("batchs", &known), Some("batch"));
        assert_eq!(nearest("wrokers", &known), Some("workers"));
        assert_eq!(nearest("directory", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
