//! Reads the fields of samples into the columns of their batch.

use std::sync::Arc;

use super::cache::Caches;
use crate::error::{DataError, Reason, reserve};
use crate::field::numpy::Numbers;
use crate::field::{
    CellFormat, DefaultValue, FieldPath, FieldValue, Pick, SampleContext, TooLong, Written,
};
use crate::footprint::Memory;
use crate::header::Header;
use crate::measure::{FieldClock, FieldMeters, ThreadMeter};
use crate::plan::{ColumnKind, ColumnRole, ColumnSettings, Plan, SamplePlan, ViewGroup, ViewPlan};
use crate::random::SampleKey;
use crate::source::Source;
use crate::transform::{DeviceMask, Followed, MaskOutputs, Masks, OneHot, Outlines};

mod array_file;
mod cached;
mod check;
mod encoded;
mod messages;

pub(in crate::loader) use check::check_fields;
pub(in crate::loader) use messages::FieldError;

use cached::{Record, Scratch};
use messages::{missing, named};

/// Set of columns that are made from fields: bit `n` stands for entry `n` of
/// [`Settings::columns`](crate::plan::Settings::columns).
pub(in crate::loader) type ColumnSet = u64;

/// Memory of one sample in all columns of its batch.
pub(in crate::loader) trait Cell {
    /// Memory in one column. For a worker's cell, `column` is the number among the columns in host
    /// memory ([`ColumnPlan::slot`](crate::plan::ColumnPlan::slot)), and columns of masks on the
    /// device have the next numbers. For a finished sample, it is an offset in bytes.
    fn part(&mut self, column: usize) -> &mut [u8];
    /// Memory from which a kernel makes the masks in the column with this number. `None` if the
    /// column is in host memory, which is the default.
    fn device_mask(&mut self, column: usize) -> Option<DeviceMask<'_>> {
        let _ = column;
        None
    }
    /// Sets the number of entries of the sample in the `number`th ragged column.
    fn set_len(&mut self, number: usize, len: usize);
}

/// Reads the fields of samples. Each thread has its own reader.
#[derive(Default)]
pub(in crate::loader) struct FieldReader {
    /// Meter of the thread. `None` in the default reader, which reads no fields.
    meter: Option<Arc<ThreadMeter>>,
    columns: Vec<FieldColumn>,
    /// Numbers of the views' columns in host memory.
    views: Vec<usize>,
    /// Files of images in fields, for views.
    files: Vec<ImageFile>,
    /// Name of the field of each column.
    wanted: Vec<String>,
    /// Each name in `wanted` once, with its positions there.
    fields: Vec<(String, Vec<usize>)>,
    /// Field and path of each column, for messages.
    shown: Vec<String>,
    buffer: Vec<u8>,
    limit: u64,
    /// `None` before the reader is created.
    caches: Option<Arc<Caches>>,
    /// Largest size of the fields of a sample in a cache, in bytes.
    most_cached: u64,
    record: Record,
    scratch: Scratch,
    /// Columns of the current sample whose objects were left out, and whether the sample is to be
    /// skipped because it has too many.
    left_out: (ColumnSet, bool),
}

/// File of an image in a field.
struct ImageFile {
    /// The field, and the name of an array of an `.npz` archive.
    field: FieldPath,
    /// Field and path, for messages.
    shown: String,
    /// Bytes of the file of the current sample. Empty if it has none.
    bytes: Vec<u8>,
}

/// Column that is made from a field.
struct FieldColumn {
    name: String,
    /// Number of the column in the cell.
    slot: usize,
    /// Number of the column among the ragged columns; `None` if it is dense.
    list: Option<usize>,
    format: CellFormat,
    settings: ColumnSettings,
    /// Number of the view that the column follows. `None` means the main chain.
    view: Option<usize>,
    /// Format of one-hot masks.
    one_hot: Option<OneHot>,
    /// File of the sample's mask, or outlines of its objects as JSON.
    encoded: Vec<u8>,
    /// Member of the JSON object in `encoded` that has the outlines.
    member: Option<String>,
    /// Result for the current sample. `None` if its value is missing.
    written: Option<Written>,
}

impl FieldReader {
    pub fn new(plan: &Plan, caches: Arc<Caches>, meter: Arc<ThreadMeter>) -> Self {
        let mut lists = 0;
        let on_host = plan.columns_in(Memory::Host).count();
        let mut device_masks = on_host..;
        let (mut columns, mut wanted, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        let mut views = Vec::new();
        for column in &*plan.columns {
            let list = column.max_len.map(|_| lists);
            lists += usize::from(list.is_some());
            let number = match column.role {
                ColumnRole::Field(number) => number,
                ColumnRole::View(_) => {
                    views.extend((column.memory == Memory::Host).then_some(column.slot));
                    continue;
                }
                _ => continue,
            };
            let settings = &plan.settings.columns[number];
            // The settings were checked, so the path is valid.
            let Ok(path) = settings.field_path() else { continue };
            shown.push(path.to_string());
            wanted.push(path.name);
            let view = ViewPlan::followed(settings, &plan.views);
            let followed = view.map_or(plan.shape, |view| plan.views[view].plan.shape);
            columns.push(FieldColumn {
                name: column.name.clone(),
                slot: match column.memory {
                    Memory::Host => column.slot,
                    // Only masks are made on the device.
                    _ => device_masks.next().unwrap_or(on_host),
                },
                list,
                format: settings.cells(&column.dims),
                view,
                one_hot: OneHot::of(settings, followed, column.memory),
                settings: settings.clone(),
                encoded: Vec::new(),
                member: None,
                written: None,
            });
        }
        let limit = plan.settings.limits.max_field_bytes;
        let file = |group: &ViewGroup<'_>| {
            group.field.map(|field| ImageFile {
                // The settings were checked, so the path is valid.
                field: field.parse().unwrap_or_else(|_| FieldPath::whole(field)),
                shown: field.into(),
                bytes: Vec::new(),
            })
        };
        let files: Vec<ImageFile> = plan.view_groups().iter().filter_map(file).collect();
        wanted.extend(files.iter().map(|file| file.field.name.clone()));
        let mut fields: Vec<(String, Vec<usize>)> = Vec::new();
        for (number, name) in wanted.iter().enumerate() {
            match fields.iter_mut().find(|(known, _)| known == name) {
                Some((_, positions)) => positions.push(number),
                None => fields.push((name.clone(), vec![number])),
            }
        }
        let names = columns.iter().map(|it| &it.name).chain(files.iter().map(|it| &it.shown));
        let names =
            names.cloned().zip(shown.iter().chain(files.iter().map(|it| &it.shown)).cloned());
        if !wanted.is_empty() {
            meter.reads_fields(FieldMeters::new(names));
        }
        let (buffer, record, scratch) = Default::default();
        let most_cached = plan.cached_field_bytes();
        Self {
            meter: Some(meter),
            columns,
            views,
            files,
            wanted,
            fields,
            shown,
            buffer,
            limit,
            caches: Some(caches),
            most_cached,
            record,
            scratch,
            left_out: Default::default(),
        }
    }

    /// Reads the fields of the sample of a key into its cell, from a cache or from the source.
    /// Returns two sets of columns: those whose value was cut, and those with their default.
    pub fn read(
        &mut self,
        source: &dyn Source,
        key: SampleKey,
        cell: &mut impl Cell,
    ) -> Result<[ColumnSet; 2], FieldError> {
        let Self {
            meter,
            columns,
            files,
            wanted,
            fields,
            shown,
            buffer,
            limit,
            caches,
            most_cached,
            record,
            scratch,
            left_out,
            views: _,
        } = self;
        *left_out = Default::default();
        let (index, limit) = (key.index, *limit);
        let Some(meter) = meter.as_deref().filter(|_| !wanted.is_empty()) else {
            return Ok([0; 2]);
        };
        files.iter_mut().for_each(|file| file.bytes.clear());
        columns.iter_mut().for_each(|column| column.written = None);
        let (mut is_recorded, original) = (false, source.field_original(index));
        if let Some(source) = source.fields() {
            let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
            let (mut skip, mut clock) = (false, FieldClock::begin(meter));
            let mut put_in = |number: usize, value: FieldValue<'_>| {
                let (len, read) = (value.len_bytes() as u64, clock.lap());
                let Some(column) = columns.get_mut(number) else {
                    let Some(file) = files.get_mut(number - columns.len()) else { return Ok(()) };
                    let ImageFile { field, bytes, .. } = &mut *file;
                    let kept = encoded::keep_image(value, field, limit, bytes);
                    clock.add_converted(number, len, read);
                    return kept.map_err(|error| named(&file.shown, None, error));
                };
                let written = match column.settings.kind {
                    ColumnKind::Mask => column.keep_mask(value, limit),
                    kind if kind.has_outlines() => column.keep_outlines(value),
                    _ => {
                        let draw = match column.format.pick {
                            Some(Pick::Random) => key.draw_of_column(&column.name),
                            _ => 0,
                        };
                        let context = SampleContext { draw, limit };
                        column.format.write(value, cell.part(column.slot), context)
                    }
                };
                column.written = written.map_err(|error| {
                    skip = column.skips(&error);
                    column.error(&shown[number], error)
                })?;
                clock.add_converted(number, len, read);
                Ok(())
            };
            let mut put = |field: usize, value: FieldValue<'_>| {
                fields[field].1.iter().try_for_each(|&number| put_in(number, value))
            };
            let kept = caches.as_ref().and_then(|it| it.get_fields(original, key.epoch));
            let result = match kept {
                Some(kept) => cached::each(&kept, scratch, &mut put),
                None => {
                    is_recorded =
                        caches.as_ref().is_some_and(|it| it.have_room_for_fields(original));
                    record.begin(*most_cached);
                    source.read_fields(index, &names, buffer, limit, &mut |field, value| {
                        put(field, value)?;
                        if is_recorded { record.add(field, value) } else { Ok(()) }
                    })
                }
            };
            match result {
                Err(error) if skip => return Err(FieldError { error, skip }),
                result => result?,
            }
        }
        if let Some(file) = files.iter().find(|file| file.bytes.is_empty()) {
            let problem = missing(source, index, &file.field.name, "");
            return Err(named(&file.shown, None, problem).into());
        }
        let (mut truncated, mut defaulted) = (0, 0);
        for (number, column) in columns.iter().enumerate() {
            let written = match (column.written, &column.settings.default) {
                (Some(written), _) => written,
                (None, Some(default)) => column
                    .write_default(default, cell.part(column.slot))
                    .map_err(|error| column.error(&shown[number], error))?,
                (None, None) => {
                    let way_out = "; set a default to accept such samples";
                    let problem = missing(source, index, &wanted[number], way_out);
                    return Err(column.error(&shown[number], problem).into());
                }
            };
            column.finish(written, cell);
            truncated |= u64::from(written.truncated) << number;
            defaulted |= u64::from(column.written.is_none()) << number;
        }
        // A sample whose values cannot be converted is not stored. Masks and images are decoded
        // later, so a damaged file of a mask is stored.
        if let (Some(caches), Some(bytes), true) = (caches, record.bytes(), is_recorded) {
            caches.keep_fields(original, bytes);
        }
        Ok([truncated, defaulted])
    }

    /// Moves the masks, points and boxes of the sample that was read last, as the actions of its
    /// plan move the pixels of its image. `of` returns the plan and the outputs of a view, or of
    /// the main chain.
    pub fn follow<'a>(
        &mut self,
        masks: &mut Masks,
        header: &Header,
        of: impl Fn(Option<usize>) -> (&'a Plan, &'a [SamplePlan]),
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        let Some(meter) = self.meter.as_deref() else { return Ok(()) };
        let mut clock = FieldClock::resume(meter);
        for (number, column) in self.columns.iter().enumerate() {
            let (Some(written), settings) = (column.written, &column.settings) else { continue };
            let bytes = written.len * column.format.entry_bytes();
            if !settings.kind.follows() {
                continue;
            }
            let (plan, samples) = of(column.view);
            let Some(sample) = samples.first() else { continue };
            let followed = match settings.kind {
                ColumnKind::Mask => {
                    let outputs =
                        MaskOutputs::new(settings, column.one_hot, (header, plan, samples));
                    let mut make = || {
                        masks.decode(&column.encoded, &outputs, header)?;
                        let is_moved_later = match cell.device_mask(column.slot) {
                            Some(mask) => masks.write_for_kernel(&outputs, mask),
                            None => false,
                        };
                        match is_moved_later {
                            true => Ok(()),
                            false => masks.write(&outputs, cell.part(column.slot)),
                        }
                    };
                    make()
                }
                ColumnKind::Points => Followed::new(settings, header, sample).move_points(
                    &column.format.dims,
                    &settings.flip_pairs,
                    bytemuck::cast_slice_mut(&mut cell.part(column.slot)[..bytes]),
                ),
                ColumnKind::Boxes => Followed::new(settings, header, sample).move_boxes(
                    settings.format,
                    bytemuck::cast_slice_mut(&mut cell.part(column.slot)[..bytes]),
                ),
                _ => {
                    let settings = (settings, &column.format);
                    let (image, part) = ((header, plan, sample), cell.part(column.slot));
                    masks.make_objects(column.outlines(), settings, image, part).map(|written| {
                        self.left_out.0 |= u64::from(written.truncated) << number;
                        column.finish(written, cell);
                    })
                }
            };
            followed.map_err(|error| {
                self.left_out.1 = column.skips(&error);
                column.error(&self.shown[number], error)
            })?;
            clock.add_followed(number);
        }
        Ok(())
    }

    /// File of the image in the field with this number, among the fields with images. Empty if the
    /// sample has none.
    pub fn file(&self, number: usize) -> &[u8] {
        &self.files[number].bytes
    }

    /// Adds the name of the field to an error of its image.
    pub fn file_error(&self, number: usize, error: DataError) -> DataError {
        named(&self.files[number].shown, None, error)
    }

    /// Columns of the current sample whose objects were left out, and whether the sample is to be
    /// skipped because it has too many.
    pub fn left_out(&self) -> (ColumnSet, bool) {
        self.left_out
    }

    /// Whether there are columns that follow the image.
    pub fn follows(&self) -> bool {
        self.columns.iter().any(|column| column.settings.kind.follows())
    }

    /// Fills the cell of a sample that failed and has no replacement: with the defaults, or with
    /// NaN, the fill of masks, and empty lists. Views in host memory are zeros.
    pub fn fill(&self, cell: &mut impl Cell) {
        self.views.iter().for_each(|&view| cell.part(view).fill(0));
        for column in &self.columns {
            let part = cell.part(column.slot);
            let fill = DefaultValue::Float(column.settings.fill());
            let written = match &column.settings.default {
                Some(default) => column.write_default(default, part),
                None if column.settings.kind == ColumnKind::Mask => {
                    column.write_default(&fill, part)
                }
                None => column.format.write_missing(part),
            };
            // Both were checked when the settings were checked.
            if let Ok(written) = written {
                column.finish(written, cell);
            }
        }
    }
}

impl FieldColumn {
    fn skips(&self, error: &DataError) -> bool {
        error.reason == Reason::TooLong && self.format.too_long == TooLong::Skip
    }

    fn finish(&self, written: Written, cell: &mut impl Cell) {
        if let Some(list) = self.list {
            cell.set_len(list, written.len);
        }
    }

    /// Writes a default. For one-hot masks, it is the class of all pixels, or any other number for
    /// no class.
    fn write_default(&self, default: &DefaultValue, part: &mut [u8]) -> Result<Written, DataError> {
        if self.settings.kind.has_outlines() {
            // The settings were checked, so the default has no objects.
            return Ok(Written { len: 0, truncated: false });
        }
        let Some(one_hot) = self.one_hot else { return self.format.write_default(default, part) };
        let class = match *default {
            DefaultValue::Integer(class) => class,
            _ => -1,
        };
        one_hot.fill(class, part);
        Ok(Written { len: 1, truncated: false })
    }

    /// Keeps the file of a mask until the geometry of its image is known. Returns `None` if there
    /// is no file.
    fn keep_mask(
        &mut self,
        value: FieldValue<'_>,
        limit: u64,
    ) -> Result<Option<Written>, DataError> {
        encoded::keep_mask(value, &self.format.field, limit, &mut self.encoded)?;
        Ok((!self.encoded.is_empty()).then_some(Written { len: 1, truncated: false }))
    }

    /// Keeps the outlines of objects until the geometry of their image is known. Returns `None` if
    /// there are none.
    fn keep_outlines(&mut self, value: FieldValue<'_>) -> Result<Option<Written>, DataError> {
        self.encoded.clear();
        self.member = None;
        let text = match value {
            FieldValue::Json(text) | FieldValue::Bytes(text) => text,
            FieldValue::JsonMember(text, name) => {
                self.member = Some(name.into());
                text
            }
            FieldValue::Text(text) => text.as_bytes(),
            // An array of NumPy without objects has no type that tells what it would have.
            FieldValue::Array(npy) if Numbers::parse(npy)?.shape.contains(&0) => b"[]",
            _ => {
                let problem = "is not JSON; the field must have a list with the outline of each \
                               object, as COCO writes them";
                return Err(DataError::new(Reason::Field, problem));
            }
        };
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        reserve::reserve(&mut self.encoded, text.len())?;
        self.encoded.extend_from_slice(text);
        let exist = self.outlines().exist()?;
        Ok(exist.then_some(Written { len: 0, truncated: false }))
    }

    fn outlines(&self) -> Outlines<'_> {
        let (json, member) = (&self.encoded[..], self.member.as_deref());
        Outlines { json, member, path: &self.format.field.steps }
    }

    /// Adds the names of the field and the column to an error.
    fn error(&self, field: &str, error: DataError) -> DataError {
        named(field, Some(&self.name).filter(|name| *name != field).map(String::as_str), error)
    }
}
