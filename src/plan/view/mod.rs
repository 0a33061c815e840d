//! Views: further outputs of the images of samples, each with a chain of its own.

use half::f16;

use crate::error::{Error, Result};
use crate::field::{FieldPath, Step};
use crate::footprint::Memory;
use crate::geometry::Size;
use crate::image::{PixelFormat, PixelType};
use crate::op::View;
use crate::random::SampleKey;
use crate::tensor::{DType, TensorShape};

use super::settings::RESERVED_NAMES;
use super::step::{planned_steps, unequal_sizes};
use super::{
    CacheSettings, ColumnKind, ColumnPlan, ColumnRole, ColumnSettings, DeviceFacts, Place, Plan,
    Settings,
};

mod place;
mod sample;

/// Value of `like` for the main chain.
const IMAGE: &str = ColumnRole::Image.name();

/// Name of the operator that normalizes pixels.
const NORMALIZE: &str = "normalize";

/// Maximum number of outputs per sample of all views together.
const MOST_OUTPUTS: u32 = 1024;

/// View with its planned chain.
#[derive(Clone, Debug)]
pub struct ViewPlan {
    /// Name of the view's column.
    pub name: String,
    /// Field with the file of the image. `None` means the image of the sample.
    pub field: Option<String>,
    /// Number of outputs per sample. `None` means one output, for which the column has no axis.
    pub count: Option<u32>,
    /// Number of outputs of one run of the chain. They have the same random numbers.
    pub of_run: u32,
    /// Whether the view uses the random numbers of a view of another image. The two images must
    /// have the same size.
    pub is_like_other: bool,
    /// Name of the view whose random numbers this view uses. `None` means those of the main chain.
    random: Option<String>,
    /// Where the whole chain runs. On the GPU, the view reads the same decoded window as the main
    /// chain.
    pub place: Place,
    /// Why the chain is on the CPU although there is a device.
    pub(super) on_cpu: Option<String>,
    /// Plan of the chain alone, on the CPU. There are no columns.
    pub plan: Plan,
}

/// Views that read the same decoded image.
#[derive(Clone, Debug)]
pub struct ViewGroup<'a> {
    /// Field with the file of the image. `None` means the image of the sample.
    pub field: Option<&'a str>,
    /// Pixels to which the image is decoded.
    pub pixels: PixelFormat,
    /// Numbers of the views.
    pub views: Vec<usize>,
}

impl ViewPlan {
    /// Plans the views of a chain. `main` is the plan of the main chain.
    ///
    /// # Errors
    /// [`Error::Config`] with the key of the setting.
    pub(super) fn all(views: &[View], main: &Plan, device: &DeviceFacts) -> Result<Vec<Self>> {
        let mut planned = Vec::new();
        let mut outputs: u32 = 0;
        for (number, view) in views.iter().enumerate() {
            let key = |name: &str| format!("view[{number}].{name}");
            let wrong = |name: &str, problem: String| Err(Error::config(key(name), problem));
            check_name(view, &views[..number], main)
                .map_err(|problem| Error::config(key("name"), problem))?;
            let of_run = view.chain.outputs();
            let count = view.count.unwrap_or(of_run);
            outputs = outputs.saturating_add(count);
            if count == 0 {
                return wrong("count", "is 0, but must be at least 1".into());
            }
            if !count.is_multiple_of(of_run) {
                let problem = format!(
                    "is {count}, but an operator of the chain makes {of_run} outputs; remove \
                     count, or write a multiple of {of_run}"
                );
                return wrong("count", problem);
            }
            if outputs > MOST_OUTPUTS {
                let problem = format!(
                    "is {count}, so the views up to this one have {outputs} outputs together; the \
                     maximum is {MOST_OUTPUTS}; lower count"
                );
                return wrong("count", problem);
            }
            if let (Some(pixels), None) = (view.pixels, &view.field) {
                let problem = format!(
                    "is {:?}, but this view has the image of the sample; set decode.pixels instead",
                    pixels.name()
                );
                return wrong("pixels", problem);
            }
            let random = random_name(view, views, main)
                .map_err(|problem| Error::config(key("like"), problem))?;
            let (place, on_cpu) = place::place(view, &key("chain"), main, device)?;
            let plan = view_plan(view, place, &key("chain"), main)?;
            if plan.has_floats() && plan.shape.dtype == DType::U8 {
                let key = if view.dtype.is_some() { key("dtype") } else { "output.dtype".into() };
                let floats = plan.source_of_floats(&format!(" of the view {:?}", view.name));
                return Err(Error::config(key, format!("is u8, but {floats}")));
            }
            if let Some(problem) = plan.overflow() {
                return Err(Error::config(key("dtype"), problem));
            }
            if view.field.as_ref().is_some_and(String::is_empty) {
                return wrong("field", "is empty; name a field of the source, or remove it".into());
            }
            if let Some(Err(problem)) = view.field.as_deref().map(image_path) {
                return wrong("field", problem);
            }
            let like = views.iter().find(|it| view.like.as_ref() == Some(&it.name));
            let followed = like.and_then(|it| it.field.as_ref());
            let is_like_other = view.like.is_some() && followed != view.field.as_ref();
            if is_like_other && main.settings.cache.presize.is_some() {
                let problem = "names a view of another image, which must have the same size, but \
                               cache.presize resizes only the sample's image; remove cache.presize";
                return wrong("like", problem.into());
            }
            planned.push(Self {
                name: view.name.clone(),
                field: view.field.clone(),
                count: (view.count.is_some() || of_run > 1).then_some(count),
                of_run,
                is_like_other,
                random,
                place,
                on_cpu,
                plan,
            });
        }
        for (number, column) in main.settings.columns.iter().enumerate() {
            if column.kind.follows() {
                check_followed(column, &planned, main)
                    .map_err(|problem| Error::config(format!("column[{number}].like"), problem))?;
            }
        }
        Ok(planned)
    }

    /// Number of outputs per sample.
    pub fn outputs(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// Lengths of the axes of one sample in the view's column.
    pub fn dims(&self) -> Vec<usize> {
        let count = self.count.map(|count| count as usize);
        count.into_iter().chain(self.plan.shape.dims()[1..].iter().copied()).collect()
    }

    /// Plans the columns of a batch: images, labels, soft targets if there are `classes`, views,
    /// and the columns that are made from fields. Images, soft targets, views on the device and
    /// masks are in `memory`.
    pub(super) fn columns(plan: &Plan, classes: Option<u32>, memory: Memory) -> Vec<ColumnPlan> {
        let view = |view: &Self| {
            let memory = if view.place == Place::Gpu { memory } else { Memory::Host };
            (view.name.clone(), view.plan.shape.dtype.into(), view.dims(), memory)
        };
        let field = |column: &ColumnSettings| {
            (column.clone(), Self::mask_dims(column, plan.shape, &plan.views))
        };
        let (views, fields) = (plan.views.iter(), plan.settings.columns.iter());
        ColumnPlan::all(plan.shape, classes, views.map(view), fields.map(field), memory)
    }

    /// Number of the view that a column follows. `None` means the main chain.
    pub fn followed(column: &ColumnSettings, views: &[Self]) -> Option<usize> {
        let like = column.like.as_ref()?;
        views.iter().position(|view| view.name == *like)
    }

    /// Shape of a sample in a column of masks. `shape` is that of the images.
    pub fn mask_dims(column: &ColumnSettings, shape: TensorShape, views: &[Self]) -> Vec<usize> {
        let view = Self::followed(column, views).map(|number| &views[number]);
        let shape = view.map_or(shape, |view| view.plan.shape);
        let count = view.and_then(|view| view.count).map(|count| count as usize);
        let dims = match column.one_hot {
            Some(classes) => {
                TensorShape { channels: classes as usize, ..shape }.dims()[1..].to_vec()
            }
            None => vec![shape.height as usize, shape.width as usize],
        };
        count.into_iter().chain(dims).collect()
    }

    /// Key of the random numbers of one output.
    pub fn key(&self, sample: SampleKey, output: u32) -> SampleKey {
        match &self.random {
            Some(name) => sample.of_view(name, output / self.of_run),
            None => sample,
        }
    }
}

/// Checks the name of a view. `earlier` are the views before it.
fn check_name(view: &View, earlier: &[View], main: &Plan) -> Result<(), String> {
    let name = &view.name;
    if name.is_empty() {
        return Err("is empty; name the view".into());
    }
    if RESERVED_NAMES.contains(&name.as_str()) {
        let problem = "which is the name of another column of batches; choose another name";
        return Err(format!("is {name:?}, {problem}"));
    }
    let is_taken = earlier.iter().any(|it| it.name == *name)
        || main.settings.columns.iter().any(|it| it.name == *name);
    match is_taken {
        true => Err(format!(
            "is {name:?}, which is also the name of another column; choose another name"
        )),
        false => Ok(()),
    }
}

/// Checks the field of an image, which may have a path to an array of an `.npz` archive.
fn image_path(field: &str) -> Result<(), String> {
    let path: FieldPath = field.parse()?;
    match &path.steps[..] {
        [] | [Step::Member(_)] => Ok(()),
        _ => Err(format!(
            "is {field:?}, but only the name of an array may follow the colon, as in pair.npz:right"
        )),
    }
}

/// Name of the view whose random numbers a view uses. `None` means those of the main chain.
fn random_name(view: &View, views: &[View], main: &Plan) -> Result<Option<String>, String> {
    let Some(like) = &view.like else { return Ok(Some(view.name.clone())) };
    let of = match like.as_str() {
        IMAGE if !main.has_images() => {
            return Err("is \"image\", but the main chain has no operators; name a view".into());
        }
        IMAGE if runs(view) != 1 || view.count == Some(1) => {
            return Err("is \"image\", which has one output per sample; remove count".into());
        }
        IMAGE => return Ok(None),
        name => views.iter().find(|it| it.name == name),
    };
    if *like == view.name {
        return Err(format!("is {like:?}, the name of this view; name another view, or remove it"));
    }
    let Some(of) = of else {
        let others = views.iter().filter(|it| it.name != view.name);
        let others: Vec<_> = others.map(|it| format!("{:?}", it.name)).collect();
        let others = match others.is_empty() {
            true => "there is no other view, so remove like".into(),
            false => format!("the other views are {}", others.join(", ")),
        };
        return Err(format!("is {like:?}, but there is no such view; {others}"));
    };
    if let Some(its) = &of.like {
        return Err(format!("is {like:?}, which has like = {its:?} itself; write like = {its:?}"));
    }
    if runs(of) != runs(view) {
        let times = |view| match runs(view) {
            1 => "once".into(),
            runs => format!("{runs} times"),
        };
        return Err(format!(
            "is {like:?}, whose chain runs {} per sample, but the chain of this view runs {}; \
             change count so that both run equally often (with five_crop or ten_crop, a run makes \
             5 or 10 outputs)",
            times(of),
            times(view)
        ));
    }
    Ok(Some(like.clone()))
}

/// Number of runs of a view's chain per sample, each with its own random numbers.
fn runs(view: &View) -> u32 {
    let of_run = view.chain.outputs();
    // A count that is too small is an error of the view itself.
    (view.count.unwrap_or(of_run) / of_run).max(1)
}

/// Checks that there is a view or image that a column can follow.
fn check_followed(column: &ColumnSettings, views: &[ViewPlan], main: &Plan) -> Result<(), String> {
    let names = || views.iter().map(|it| format!("{:?}", it.name)).collect::<Vec<_>>().join(", ");
    let like = column.like.as_deref().unwrap_or(IMAGE);
    match ViewPlan::followed(column, views) {
        None if like != IMAGE && views.is_empty() => Err(format!(
            "is {like:?}, but there are no views; remove like to follow {IMAGE:?}, or add a view \
             with this name ([[view]], in Python fw.view)"
        )),
        None if like != IMAGE => Err(format!(
            "is {like:?}, but there is no such view; follow {IMAGE:?} or a view: {}",
            names()
        )),
        None if !main.has_images() && !views.is_empty() => Err(format!(
            "is {IMAGE:?}, but the main chain has no operators; name the view to follow: {}",
            names()
        )),
        Some(number) if views[number].field.is_some() => Err(format!(
            "is {like:?}, which has an image of its own, and such columns follow only the image of \
             the sample; follow another view or {IMAGE:?}"
        )),
        Some(number) if column.kind != ColumnKind::Mask && views[number].count.is_some() => {
            Err(format!(
                "is {like:?}, whose column has an axis for outputs, but {} can follow only a view \
                 without one; follow a view without count, five_crop and ten_crop",
                column.kind.name()
            ))
        }
        _ => Ok(()),
    }
}

/// Plan of a view's chain, which runs at `place`. `list` is the key of the chain.
fn view_plan(view: &View, place: Place, list: &str, main: &Plan) -> Result<Plan> {
    let chain = &view.chain;
    if !chain.batch_operators().is_empty() || !chain.views().is_empty() {
        let problem = "has batch operators or views, but a view's chain has only operators on single images; remove them";
        return Err(Error::config(list, problem));
    }
    let format = match &view.field {
        Some(_) => view.pixels.unwrap_or_default(),
        None => main.settings.decode.pixels,
    };
    let (steps, size, channels) =
        planned_steps(chain, vec![place; chain.steps().len()], format, list)?;
    if steps.is_empty() {
        let problem =
            "has no operators; add one with a fixed output size, such as random_resized_crop";
        return Err(Error::config(list, problem));
    }
    let size = size.ok_or_else(|| unequal_sizes(list))?;
    let shape = TensorShape {
        width: size.width,
        height: size.height,
        channels,
        dtype: view.dtype.unwrap_or(main.settings.output.dtype),
        ..main.shape
    };
    let mut settings = Settings { columns: Vec::new(), ..main.settings.clone() };
    settings.decode.pixels = format;
    if view.field.is_some() {
        // Caches hold only the samples' own images.
        settings.cache = CacheSettings::default();
    }
    let (decode, stage, reads_image) = (Place::Cpu, None, true);
    Ok(Plan { settings, steps, shape, decode, stage, reads_image, ..main.clone() })
}

impl Plan {
    /// Whether batches have images besides the views. They have none if the main chain has no
    /// operators.
    pub fn has_images(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether the chain outputs floats.
    pub(super) fn has_floats(&self) -> bool {
        self.steps.last().is_some_and(|step| step.pixels == PixelType::F32)
    }

    /// Why the chain outputs floats, and what to change if it must not, for messages. `place` names
    /// the chain.
    pub(super) fn source_of_floats(&self, place: &str) -> String {
        match self.pixel_format() {
            format if !format.is_floats() => format!(
                "the operator normalize{place} makes floats; choose f32, f16 or bf16, or remove \
                 normalize"
            ),
            format => format!(
                "decoded {} pixels{place} do not fit u8; choose f32 or bf16, or f16 after normalize",
                format.name()
            ),
        }
    }

    /// Problem of an element type that is too small for the output of the chain.
    pub(super) fn overflow(&self) -> Option<String> {
        let is_normalized = self.steps.iter().any(|step| step.operator.name() == NORMALIZE);
        let format = self.pixel_format();
        let overflows = format.scale() > f16::MAX.to_f32() && self.shape.dtype == DType::F16;
        (overflows && !is_normalized).then(|| {
            format!(
                "is f16, whose maximum is {}, but {} pixels go up to {}; add normalize, or choose \
                 f32 or bf16",
                f16::MAX,
                format.name(),
                format.scale()
            )
        })
    }

    /// Pixels of the decoded image that the chain reads.
    pub(crate) fn pixel_format(&self) -> PixelFormat {
        self.settings.decode.pixels
    }

    /// The views by the image that they read. The first group is that of the sample's image, and
    /// may be empty. A field whose image is decoded to several pixel formats has several groups.
    pub(crate) fn view_groups(&self) -> Vec<ViewGroup<'_>> {
        let pixels = self.pixel_format();
        let mut groups = vec![ViewGroup { field: None, pixels, views: Vec::new() }];
        for (number, view) in self.views.iter().enumerate() {
            let (field, pixels) = (view.field.as_deref(), view.plan.pixel_format());
            match groups.iter_mut().find(|it| (it.field, it.pixels) == (field, pixels)) {
                Some(group) => group.views.push(number),
                None => groups.push(ViewGroup { field, pixels, views: vec![number] }),
            }
        }
        groups
    }

    /// Size of the largest output of a chain: the maximum of each side over the main chain and all
    /// views.
    pub(crate) fn largest_output(&self) -> Size {
        let views = self.views.iter().map(|view| view.plan.shape);
        views.chain([self.shape]).fold(Size::default(), |largest, of| {
            Size::new(largest.width.max(of.width), largest.height.max(of.height))
        })
    }

    /// Size in bytes of the images and views of one batch.
    pub(crate) fn output_bytes(&self) -> usize {
        let views = self
            .views
            .iter()
            .map(|view| view.plan.shape.bytes().saturating_mul(view.outputs() as usize));
        views.fold(self.shape.bytes(), usize::saturating_add)
    }

    /// Columns of masks, each with its settings and the number of the view that it follows. `None`
    /// means the main chain.
    pub(crate) fn mask_columns(
        &self,
    ) -> impl Iterator<Item = (&ColumnPlan, &ColumnSettings, Option<usize>)> {
        self.columns.iter().filter_map(|column| {
            let ColumnRole::Field(number) = column.role else { return None };
            let settings = &self.settings.columns[number];
            let is_mask = settings.kind == ColumnKind::Mask;
            is_mask.then(|| (column, settings, ViewPlan::followed(settings, &self.views)))
        })
    }

    /// Whether masks, and whether outlines of objects follow the view with this number, or the main
    /// chain if it is `None`.
    pub(super) fn followers(&self, view: Option<usize>) -> [bool; 2] {
        let follows = |of: &dyn Fn(ColumnKind) -> bool| {
            let mut columns = self.settings.columns.iter();
            columns.any(|it| of(it.kind) && ViewPlan::followed(it, &self.views) == view)
        };
        [follows(&|it| it == ColumnKind::Mask), follows(&ColumnKind::has_outlines)]
    }
}
