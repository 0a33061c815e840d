//! Annotated objects of a sample.

use feedwater::annotation;
use feedwater::annotation::{PlacedObject, RunLengths};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// Annotated objects of one sample that are visible in its tensor. Methods return a column of
/// values as bytes in native byte order.
#[pyclass(frozen)]
pub struct Objects {
    objects: annotation::Objects,
    /// Objects that Python sees.
    chosen: Vec<Chosen>,
}

/// Number of an object among the visible or among the hidden objects.
enum Chosen {
    Visible(usize),
    Hidden(usize),
}

impl Objects {
    /// Creates the list. Leaves out an object if the visible fraction of its box is below
    /// `visible`, and leaves out crowds unless `crowd` is set.
    pub fn new(objects: annotation::Objects, visible: f64, crowd: bool) -> Self {
        let is_chosen = |it: &PlacedObject| it.visible >= visible && (crowd || !it.crowd);
        let chosen = (0..objects.len()).filter(|&number| is_chosen(&objects[number]));
        let chosen = chosen.map(Chosen::Visible).collect();
        Self { objects, chosen }
    }

    /// Creates the list of all objects, also of those that the tensor does not show, in the order
    /// of the annotations.
    pub fn all(objects: annotation::Objects) -> Self {
        let visible = (0..objects.len()).map(|it| (objects[it].index, Chosen::Visible(it)));
        let hidden = objects.hidden().iter().enumerate();
        let hidden = hidden.map(|(number, it)| (it.index, Chosen::Hidden(number)));
        let mut all: Vec<_> = visible.chain(hidden).collect();
        all.sort_by_key(|it| it.0);
        let chosen = all.into_iter().map(|it| it.1).collect();
        Self { objects, chosen }
    }

    fn get(&self, of: &Chosen) -> &PlacedObject {
        match *of {
            Chosen::Visible(number) => &self.objects[number],
            Chosen::Hidden(number) => &self.objects.hidden()[number],
        }
    }

    /// Mask of an object. `None` if it is hidden or has no outline.
    fn mask(&self, of: &Chosen) -> Option<Vec<u8>> {
        match *of {
            Chosen::Visible(number) => self.objects.mask(number),
            Chosen::Hidden(_) => None,
        }
    }

    /// Returns the `N` values of each chosen object, one object after the other, as bytes.
    fn column<'py, const N: usize, const BYTES: usize>(
        &self,
        py: Python<'py>,
        of: impl Fn(&PlacedObject) -> [[u8; BYTES]; N],
    ) -> Bound<'py, PyByteArray> {
        let values: Vec<_> = self.chosen.iter().flat_map(|chosen| of(self.get(chosen))).collect();
        PyByteArray::new(py, values.as_flattened())
    }
}

#[pymethods]
impl Objects {
    fn __len__(&self) -> usize {
        self.chosen.len()
    }

    /// Width and height of the tensor.
    #[getter]
    fn size(&self) -> (u32, u32) {
        let size = self.objects.size();
        (size.width, size.height)
    }

    /// Left, top, right and bottom edges of the boxes, f32.
    fn boxes<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        self.column(py, |it| it.bbox.xyxy().map(f32::to_ne_bytes))
    }

    /// Categories, i64.
    fn categories<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        self.column(py, |it| [it.category.to_ne_bytes()])
    }

    /// IDs, i64.
    fn ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        self.column(py, |it| [it.id.to_ne_bytes()])
    }

    /// Areas, f64.
    fn areas<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        self.column(py, |it| [it.area.to_ne_bytes()])
    }

    /// Visible shares of the boxes, f64.
    fn visible<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        self.column(py, |it| [it.visible.to_ne_bytes()])
    }

    /// Whether each object is a crowd, as a byte.
    fn crowd<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        self.column(py, |it| [[it.crowd.into()]])
    }

    /// Masks, one byte per pixel of the tensor; zeros for an object without an outline.
    fn masks<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let pixels = self.objects.size().pixels() as usize;
        let masks = py.detach(|| {
            let mut masks = vec![0; pixels * self.chosen.len()];
            for (place, chosen) in self.chosen.iter().enumerate() {
                if let Some(mask) = self.mask(chosen) {
                    masks[place * pixels..][..pixels].copy_from_slice(&mask);
                }
            }
            masks
        });
        PyByteArray::new(py, &masks)
    }

    /// Masks as compressed run lengths of COCO; `None` for an object without an outline, and for a
    /// hidden object.
    fn runs<'py>(&self, py: Python<'py>) -> Vec<Option<Bound<'py, PyBytes>>> {
        let runs: Vec<_> = py.detach(|| {
            let masks = self.chosen.iter().map(|chosen| self.mask(chosen));
            let compressed =
                |mask: Vec<u8>| RunLengths::from_mask(self.objects.size(), &mask).to_compressed();
            masks.map(|mask| mask.map(compressed)).collect()
        });
        runs.into_iter().map(|it| it.map(|text| PyBytes::new(py, &text))).collect()
    }
}
