//! Mixes: the weighted sum of an image and of the results of several chains, each of which begins at that image.
//!
//! The actions of a mix are [`Mix::Begin`], those of the first chain, [`Mix::Add`], those of the second chain,
//! [`Mix::Add`], and so on. Between them, images are passed on as usual.

use serde_json::{Value, json};

use crate::error::DataError;
use crate::geometry::Roi;
use crate::image::{HostImage, Image};

use super::{ActionKind, ActionParams, Execution, Executor, Facts, ParamBytes};

pub use self::Mix as Params;

/// The kind. No kernel mixes.
pub static FACTS: Facts = Facts::new::<Mix>(Execution::Mix);

/// A place of a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Begins the sum with the image. The image stays.
    Begin {
        /// Weight of the image.
        weight: f32,
        /// Window of the sum.
        window: Roi,
    },
    /// Adds the result of a chain.
    Add {
        /// Weight of the result.
        weight: f32,
        /// Whether it is the last one, so that the sum becomes the image. Otherwise the image at the begin does.
        last: bool,
    },
}

impl ActionKind for Mix {
    // Windows of mixes are set for all their actions together, by `Branches`.

    fn executor(&self) -> Executor<'_> {
        Executor::Mix(self)
    }

    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, mixer: &mut Mixer) {
        mixer.take(*self, src, out).expect("a reference may allocate");
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        ParamBytes::new(&[0u64; 0])
    }

    /// A mix begins with the image's weight; the others end a chain that begins at the image.
    fn named(&self) -> (&'static str, Option<Value>) {
        let (weight, at) = match *self {
            Mix::Begin { weight, .. } => (weight, "begin"),
            Mix::Add { weight, last: false } => (weight, "next"),
            Mix::Add { weight, last: true } => (weight, "end"),
        };
        ("mix", Some(json!({ "weight": weight, "at": at })))
    }
}

/// Whether actions in order are inside of a mix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inside(bool);

impl Inside {
    /// Passes an action. Returns whether it is one of a mix.
    pub fn pass(&mut self, params: &ActionParams) -> bool {
        if let ActionParams::Mix(mix) = params {
            self.0 = !matches!(mix, Mix::Add { last: true, .. });
            return true;
        }
        self.0
    }
}

/// Windows of a mix, from its end on.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Window of the sum.
    sum: Roi,
    /// Window of the image at the begin that the chains so far and the sum read.
    begin: Roi,
}

/// Windows of the mix that is passed backwards, if one is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Branches(Option<Windows>);

impl Branches {
    /// Passes an action backwards. `window` is needed of the image behind it. Returns the window that is needed of it, which
    /// differs at a place of a mix.
    pub fn pass_back(&mut self, params: &mut ActionParams, window: Roi) -> Roi {
        let ActionParams::Mix(at) = params else { return window };
        match at {
            Mix::Add { last: true, .. } => {
                self.0 = Some(Windows { sum: window, begin: window });
                window
            }
            Mix::Add { last: false, .. } => self.0.as_mut().map_or(window, |mix| {
                mix.begin = mix.begin.around(window);
                mix.sum
            }),
            Mix::Begin { window: sum, .. } => self.0.take().map_or(window, |mix| {
                *sum = mix.sum;
                mix.begin.around(window)
            }),
        }
    }

    /// Sets the windows of the images to which mixes return: those at their begins. Takes the actions in order, with their
    /// output windows.
    pub fn set_outputs<'a>(actions: impl Iterator<Item = (&'a ActionParams, &'a mut Roi)>) {
        let mut begin = Roi::default();
        for (params, output) in actions {
            match params {
                ActionParams::Mix(Mix::Begin { .. }) => begin = *output,
                ActionParams::Mix(Mix::Add { last: false, .. }) => *output = begin,
                _ => {}
            }
        }
    }
}

/// Image at the begin of a mix, and the weighted sum of its chains. The next sample reuses the
/// memory.
#[derive(Clone, Debug, Default)]
pub struct Mixer {
    image: Image<u8>,
    sum: Image<f32>,
}

impl Mixer {
    /// Executes one action of a mix on the image `src` and writes the next image to `out`, within the
    /// window that `out` has. `Begin` keeps the image and starts the weighted sum. `Add` adds `src` to
    /// the sum; the next image is the one that `Begin` kept, or after the last `Add` the sum.
    pub fn take(
        &mut self,
        mix: Mix,
        src: &HostImage,
        out: &mut HostImage,
    ) -> Result<(), DataError> {
        let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
            unreachable!("mixes are of bytes");
        };
        match mix {
            Mix::Begin { weight, window } => {
                self.image.reset(out.window())?;
                copy(src, &mut self.image);
                self.sum.reset(window)?;
                self.sum.data_mut().fill(0.0);
                self.add(weight, src);
                copy(src, out);
            }
            Mix::Add { weight, last } => {
                self.add(weight, src);
                match last {
                    false => copy(&self.image, out),
                    true => {
                        let window = out.window();
                        for y in window.y..window.bottom() {
                            let sums = columns(&self.sum, window, y);
                            for (byte, sum) in out.row_mut(y).iter_mut().zip(sums) {
                                // Without the fraction, as torchvision.
                                *byte = *sum as u8;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Memory held, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.image.capacity_bytes() + self.sum.capacity_bytes()
    }

    fn add(&mut self, weight: f32, src: &Image<u8>) {
        let window = self.sum.window();
        for y in window.y..window.bottom() {
            let bytes = columns(src, window, y);
            for (sum, byte) in self.sum.row_mut(y).iter_mut().zip(bytes) {
                *sum += weight * f32::from(*byte);
            }
        }
    }
}

/// Copies what an image has of another, larger one.
fn copy(src: &Image<u8>, out: &mut Image<u8>) {
    let window = out.window();
    for y in window.y..window.bottom() {
        out.row_mut(y).copy_from_slice(columns(src, window, y));
    }
}

/// Values of the columns of `window` in row `y` of an image that has them.
fn columns<T: Copy + Default>(image: &Image<T>, window: Roi, y: u32) -> &[T] {
    let first = 3 * (window.x - image.window().x) as usize;
    &image.row(y)[first..][..3 * window.width as usize]
}
