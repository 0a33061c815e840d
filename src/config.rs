//! Pipeline file: conversion from TOML to a [`LoaderBuilder`] and back.
//!
//! Keys have the names of the Rust fields. Omitted keys have the defaults of these fields. Each
//! section corresponds to a type of [`Settings`]. An entry of `[[chain]]` has the fields of an
//! operator, plus `op` (the operator's name) and `placement`. Paths are relative to the folder of
//! the file.
//!
//! Every error in the file is an [`Error::Config`] with the full key and its location in the file.
//! This includes errors that are found later, by the plan or when the source is opened. Errors for
//! unknown keys, operators and choices suggest the nearest known name. For names of torchvision,
//! DALI and albumentations they suggest the equivalent.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::loader::LoaderBuilder;
use crate::op::Chain;
use crate::plan::{DeviceChoice, Settings};
use crate::source::{Source, SourceSettings};
use crate::storage::{Storage, StorageSettings};

use document::Document;
use lists::{batch_operators, chain, columns, step_table, views, wrong_type};
use node::{read, unknown};
use source::source;

mod document;
mod equivalents;
mod former;
mod homes;
mod lists;
mod node;
mod ranges;
mod source;

/// Keys and sections of a pipeline file.
const SECTIONS: [&str; 13] = [
    "device",
    "source",
    "loader",
    "decode",
    "output",
    "targets",
    "cache",
    "limits",
    "storage",
    "column",
    "chain",
    "batch_operators",
    "view",
];

/// Contents of a pipeline file.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// `[source]`.
    pub source: SourceSettings,
    /// Settings of `device`, `[loader]`, `[decode]`, `[output]`, `[targets]`, `[[column]]`,
    /// `[cache]`, `[limits]` and `[storage]`.
    pub settings: Settings,
    /// Operators of `[[chain]]` and `[[batch_operators]]`, and the views of `[[view]]`.
    pub chain: Chain,
    /// Operator settings as written in the file, for [`Pipeline::to_toml`].
    written: Written,
    origin: Arc<Origin>,
}

/// Operator settings as written in the file.
#[derive(Clone, Debug, Default)]
struct Written {
    chain: Vec<Table>,
    batch_operators: Vec<Table>,
    views: Vec<Table>,
}

/// Document from which a pipeline was read.
#[derive(Debug)]
struct Origin {
    document: Document,
    /// Settings in the file, without later changes by the program.
    settings: Settings,
}

impl Pipeline {
    /// Reads a pipeline file of at most 16 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read. [`Error::Config`] if it is not UTF-8 or invalid.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_document(Document::from_file(path.as_ref())?)
    }

    /// Parses the text of a pipeline file. Paths in the text are relative to `base`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the text is invalid.
    pub fn from_toml(text: &str, base: impl AsRef<Path>) -> Result<Self> {
        Self::from_document(Document::from_text(text, base.as_ref()))
    }

    /// Provides a source that the program created. The file refers to it with `own = "name"`, as
    /// the only source or inside a mixture or concatenation. Opening the pipeline fails until all
    /// such sources are provided.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use feedwater::Pipeline;
    /// use feedwater::source::Memory;
    ///
    /// # fn main() -> feedwater::Result<()> {
    /// let text = r#"
    ///     [[source.concat]]
    ///     own = "new"
    ///     [[source.concat]]
    ///     own = "old"
    ///     take = 1
    ///     [[chain]]
    ///     op = "resize"
    ///     width = 2
    ///     height = 1
    /// "#;
    /// let image = b"P6 2 1 255\n\x01\x02\x03\x04\x05\x06".to_vec();
    /// let new = Memory::new(vec![(image.clone(), 0)])?;
    /// let old = Memory::new(vec![(image.clone(), 1), (image, 2)])?;
    /// let pipeline = Pipeline::from_toml(text, ".")?;
    /// let pipeline = pipeline.give("new", Arc::new(new))?.give("old", Arc::new(old))?;
    /// let mut loader = pipeline.builder()?.batch_size(2).epochs(Some(1)).build()?;
    /// for batch in &mut loader {
    ///     assert_eq!(batch?.labels(), [0, 1]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the file has no source with this name.
    pub fn give(mut self, name: &str, source: Arc<dyn Source>) -> Result<Self> {
        let given = self.source.give(name, source);
        self.source = given.map_err(|error| self.origin.locate(error, &self.settings))?;
        Ok(self)
    }

    /// Creates a storage handle with the settings of `[storage]`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a setting is invalid, with its location in the file.
    pub fn storage(&self) -> Result<Storage> {
        let storage = Storage::new(&self.settings.storage);
        storage.map_err(|error| self.origin.locate(error, &self.settings))
    }

    /// Opens the source through a new storage handle ([`Pipeline::storage`]).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`SourceSettings::open`], with the key and its location in the file,
    /// and those of [`storage`](Self::storage).
    pub fn open(&self) -> Result<Arc<dyn Source>> {
        self.open_with(&self.storage()?)
    }

    /// Opens the source through the given storage handle. Ignores the file's section `[storage]`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`SourceSettings::open`], with the key and its location in the file.
    pub fn open_with(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        let opened = self.source.open_with(storage);
        opened.map_err(|error| self.origin.locate(error, &self.settings))
    }

    /// Opens the source through a new storage handle ([`Pipeline::storage`]), and creates a loader
    /// builder with the pipeline's chain and settings. The loader's errors about settings include
    /// the location in the file.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Pipeline::open`].
    pub fn builder(&self) -> Result<LoaderBuilder> {
        self.builder_with(&self.storage()?)
    }

    /// Like [`builder`](Self::builder), but opens the source through the given storage handle.
    /// Ignores the file's section `[storage]`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Pipeline::open_with`].
    pub fn builder_with(&self, storage: &Storage) -> Result<LoaderBuilder> {
        let origin = self.origin.clone();
        let locate = move |error, settings: &Settings| origin.locate(error, settings);
        let begin = Instant::now();
        let source = self.open_with(storage)?;
        let builder = LoaderBuilder::new(source, self.chain.clone()).opened_in(begin.elapsed());
        Ok(builder.settings(self.settings.clone()).locate_errors(Arc::new(locate)))
    }

    /// Converts to an equivalent pipeline file that contains every setting. Paths are relative to
    /// the working directory.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if TOML cannot represent a value: an integer of 2^63 or more, or a path
    /// that is not Unicode.
    pub fn to_toml(&self) -> Result<String> {
        let mut text = format!("device = \"{}\"\n\n", self.settings.device);
        let source =
            Table::from_iter([("source".to_string(), Value::Table(self.source.to_table()?))]);
        text += &toml::to_string(&source).expect("a TOML value serializes");
        section(&mut text, "[loader]", &value("loader", &self.settings.loader)?);
        section(&mut text, "[decode]", &value("decode", &self.settings.decode)?);
        section(&mut text, "[output]", &value("output", &self.settings.output)?);
        section(&mut text, "[targets]", &value("targets", &self.settings.targets)?);
        section(&mut text, "[cache]", &value("cache", &self.settings.cache)?);
        section(&mut text, "[limits]", &value("limits", &self.settings.limits)?);
        section(&mut text, "[storage]", &value("storage", &self.settings.storage)?);
        for column in &self.settings.columns {
            let list = Table::from_iter([(
                "column".to_string(),
                Value::from(vec![value("column", column)?]),
            )]);
            text.push('\n');
            text += &toml::to_string(&list).expect("a TOML value serializes");
        }
        let mut add = |list: &str, table: Table| {
            let list = Table::from_iter([(list.to_string(), Value::from(vec![table]))]);
            text.push('\n');
            text += &toml::to_string(&list).expect("a TOML value serializes");
        };
        for (step, written) in self.chain.steps().iter().zip(&self.written.chain) {
            add("chain", step_table(step, written)?);
        }
        let operators = self.chain.batch_operators().iter().zip(&self.written.batch_operators);
        for (operator, written) in operators {
            let mut table = Table::new();
            table.insert("op".into(), operator.name().into());
            table.extend(written.clone());
            add("batch_operators", table);
        }
        self.written.views.iter().for_each(|view| add("view", view.clone()));
        Ok(text)
    }

    fn from_document(document: Document) -> Result<Self> {
        let table = document.table()?;
        let (source, settings, chain, written) =
            parts(table, document.base()).map_err(|error| document.locate(error))?;
        let origin = Arc::new(Origin { document, settings: settings.clone() });
        Ok(Self { source, settings, chain, written, origin })
    }
}

impl Origin {
    /// Adds to an error the location of its key in the file, unless the program changed that
    /// setting after reading the file.
    fn locate(&self, error: Error, settings: &Settings) -> Error {
        let key = match &error {
            Error::Config(error) => &error.key,
            Error::Unavailable { asked: Some(asked), .. } => &asked.key,
            _ => return self.document.locate(error),
        };
        match value_of(settings, key) == value_of(&self.settings, key) {
            true => self.document.locate(error),
            false => error,
        }
    }
}

/// Value of the setting with this key. `None` if the key is not in a section of [`Settings`].
fn value_of(settings: &Settings, key: &str) -> Option<serde_json::Value> {
    let Settings { device, loader, decode, output, targets, columns, cache, limits, storage } =
        settings;
    if key.starts_with("column[") {
        return serde_json::to_value(columns).ok();
    }
    if key == "device" {
        return serde_json::to_value(device).ok();
    }
    let (section, key) = key.split_once('.')?;
    let section = match section {
        "loader" => serde_json::to_value(loader),
        "decode" => serde_json::to_value(decode),
        "output" => serde_json::to_value(output),
        "targets" => serde_json::to_value(targets),
        "cache" => serde_json::to_value(cache),
        "limits" => serde_json::to_value(limits),
        "storage" => serde_json::to_value(storage),
        _ => return None,
    };
    let key = key.split(['[', '.']).next()?;
    section.ok()?.get(key).cloned()
}

/// Parses the sections of a file.
fn parts(mut file: Table, base: &Path) -> Result<(SourceSettings, Settings, Chain, Written)> {
    let is_known = |key: &str| SECTIONS.contains(&key) || former::is_section(key);
    if let Some(key) = file.keys().find(|key| !is_known(key)) {
        return Err(unknown(key, &SECTIONS).into_error(""));
    }
    let source = source(file.remove("source"), base)?;
    let settings = Settings {
        device: match file.remove("device") {
            Some(value) => read(value).map_err(|problem| problem.into_error("device"))?,
            None => DeviceChoice::default(),
        },
        loader: settings(&mut file, "loader")?,
        decode: settings(&mut file, "decode")?,
        output: settings(&mut file, "output")?,
        targets: settings(&mut file, "targets")?,
        columns: columns(file.remove("column"))?,
        cache: settings(&mut file, "cache")?,
        limits: settings(&mut file, "limits")?,
        storage: storage_settings(&mut file, base)?,
    };
    settings.check()?;
    let (name, steps) = match (file.remove("chain"), file.remove("transform")) {
        (Some(_), Some(_)) => return Err(Error::config("chain", former::twice("chain"))),
        (None, Some(steps)) => ("transform", Some(steps)),
        (steps, None) => ("chain", steps),
    };
    let (chain, steps) = chain(name, steps)?;
    let (chain, batch_operators) = batch_operators(file.remove("batch_operators"), chain)?;
    let (chain, views) = views(file.remove("view"), chain)?;
    Ok((source, settings, chain, Written { chain: steps, batch_operators, views }))
}

/// Parses `[storage]`. Its paths are relative to the file.
fn storage_settings(file: &mut Table, base: &Path) -> Result<StorageSettings> {
    let mut storage: StorageSettings = settings(file, "storage")?;
    if storage.cache_directory.as_ref().is_some_and(|it| it.as_os_str().is_empty()) {
        let problem = "is empty; name a folder, or omit it";
        return Err(Error::config("storage.cache_directory", problem));
    }
    storage.ca_file = storage.ca_file.map(|file| base.join(file));
    for folder in &mut storage.allow_folders {
        *folder = base.join(&*folder);
    }
    storage.cache_directory = storage.cache_directory.map(|directory| base.join(directory));
    Ok(storage)
}

/// Parses a section of the file. If it is missing, returns the default.
fn settings<T: DeserializeOwned + Default>(file: &mut Table, key: &str) -> Result<T> {
    match file.remove(key) {
        Some(value @ Value::Table(_)) => read(value).map_err(|problem| problem.into_error(key)),
        Some(other) => Err(not_a_section(key, &other)),
        None => Ok(T::default()),
    }
}

/// Error for a section that is not a table.
fn not_a_section(key: &str, found: &Value) -> Error {
    let has_tables = |list: &Vec<Value>| list.first().is_some_and(Value::is_table);
    match found.as_array().is_some_and(has_tables) {
        true => {
            let problem = format!("must be one table: write [{key}] instead of [[{key}]]");
            Error::config(key, problem)
        }
        false => {
            wrong_type(key, &format!("a table: [{key}] with a key and a value per line"), found)
        }
    }
}

fn value(key: &str, from: &impl Serialize) -> Result<Value> {
    Value::try_from(from).map_err(|error| Error::config(key, error.to_string()))
}

fn section(text: &mut String, head: &str, fields: &impl Serialize) {
    if !text.is_empty() {
        text.push('\n');
    }
    let fields = toml::to_string(fields).expect("a TOML value serializes");
    write!(text, "{head}\n{fields}").expect("writing to a String succeeds");
}
