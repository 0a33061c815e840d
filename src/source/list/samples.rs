//! Samples of a list while it is read.

use std::collections::HashMap;

use super::rows::Rows;
use crate::source::file;
use crate::source::label::{self, LabelSort, MOST_NAME_BYTES};

/// Error in a line of the list.
pub(super) struct LineError {
    pub line: u64,
    pub problem: String,
}

impl LineError {
    pub fn new(line: u64, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}

/// Samples that have been read so far.
#[derive(Default)]
pub(super) struct Samples {
    /// Whether only fields are read. Then samples need no paths and have no labels.
    pub for_fields: bool,
    pub paths: String,
    pub ends: Vec<u64>,
    /// Labels. Until the classes are numbered, a text label is the position of its name in
    /// `classes`.
    pub labels: Vec<i64>,
    pub classes: Vec<String>,
    known: HashMap<String, i64>,
    /// Warning that no sample has a label, although the list has columns or keys besides the path.
    pub unlabelled: Option<String>,
    /// Where the fields of each sample are, if the list has more than a path and a label.
    pub rows: Option<Rows>,
    /// Line and text of the first integer label, and of the first text label.
    integer: Option<(u64, String)>,
    text: Option<(u64, String)>,
}

/// Label as written in the list.
pub(super) enum Written<'a> {
    /// No label.
    None,
    Number(i64),
    Text(&'a str),
}

impl Samples {
    /// Reserves memory for a list that is `whole` times as long as the part read so far. Without
    /// this, growing a table could copy it, which needs twice its memory for a moment. Reserved
    /// memory that is never written takes no physical memory.
    pub fn reserve(&mut self, whole: f64) {
        let more = |len: usize| (len as f64 * (whole - 1.0) * 1.05) as usize;
        // If a reservation fails, or if there are more lines than estimated, the tables grow later.
        let _ = self.paths.try_reserve(more(self.paths.len()));
        let _ = self.ends.try_reserve(more(self.ends.len()));
        let _ = self.labels.try_reserve(more(self.labels.len()));
    }

    pub fn push(
        &mut self,
        line: u64,
        path: &str,
        label: Written,
        sort: LabelSort,
    ) -> Result<(), LineError> {
        let is_path = (1..=file::MOST_PATH_BYTES).contains(&path.len());
        let path = if is_path || !self.for_fields { path } else { "" };
        match path.len() {
            0 if self.for_fields => {}
            0 => return Err(LineError::new(line, "the path is empty")),
            len if len > file::MOST_PATH_BYTES => {
                let most = file::MOST_PATH_BYTES;
                return Err(LineError::new(
                    line,
                    format!("the path has {len} bytes; the maximum is {most} bytes"),
                ));
            }
            _ => {}
        }
        let label = match (label, sort) {
            (Written::None, _) => -1,
            (Written::Number(label), LabelSort::Text) => self.class(line, &label.to_string())?,
            (Written::Number(label), _) => self.number_of(line, label, label),
            (Written::Text(text), LabelSort::Text) => self.class(line, text)?,
            (Written::Text(text), LabelSort::Auto | LabelSort::Integer) => {
                match label::number(text) {
                    Some(Ok(label)) => self.number_of(line, label, text),
                    Some(Err(why)) => {
                        let problem = format!(
                            "the label {text:?} {why}; make it a whole number that fits, or write \
                             labels = \"text\" if labels are names"
                        );
                        return Err(LineError::new(line, problem));
                    }
                    None => self.class(line, text)?,
                }
            }
        };
        self.paths += path;
        self.ends.push(self.paths.len() as u64);
        self.labels.push(label);
        match (&self.integer, &self.text) {
            (_, Some((line, text))) if sort == LabelSort::Integer => {
                Err(LineError::new(*line, format!("the label must be a whole number, is {text:?}")))
            }
            (Some((integer, number)), Some((line, text))) => Err(LineError::new(
                *line,
                format!(
                    "the label is the name {text:?}, but in line {integer} it is the number \
                     {number}; make all labels numbers or all names, or write labels = \"text\" \
                     if all are names"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn number_of(&mut self, line: u64, label: i64, written: impl ToString) -> i64 {
        self.integer.get_or_insert_with(|| (line, written.to_string()));
        label
    }

    fn class(&mut self, line: u64, text: &str) -> Result<i64, LineError> {
        if text.len() > MOST_NAME_BYTES {
            let problem = format!(
                "the label has {} bytes; the maximum is {MOST_NAME_BYTES} bytes",
                text.len()
            );
            return Err(LineError::new(line, problem));
        }
        self.text.get_or_insert_with(|| (line, text.to_string()));
        if let Some(&class) = self.known.get(text) {
            return Ok(class);
        }
        let class = self.classes.len() as i64;
        self.known.insert(text.to_string(), class);
        self.classes.push(text.to_string());
        Ok(class)
    }

    /// Numbers the classes in the order of their names.
    pub fn number(&mut self) {
        label::sort_names(&mut self.classes);
        let mut labels = vec![0; self.classes.len()];
        for (label, name) in self.classes.iter().enumerate() {
            labels[self.known[name] as usize] = label as i64;
        }
        if !labels.is_empty() {
            // Integers and texts never occur together, so every label except -1 is a position in
            // `classes`.
            self.labels.iter_mut().filter(|it| **it >= 0).for_each(|it| *it = labels[*it as usize]);
        }
    }
}
