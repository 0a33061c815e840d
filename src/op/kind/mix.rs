//! Mixes: a weighted sum of an image and of the results of several branches. A branch is a sequence
//! of actions that begins with this image.
//!
//! The list of actions holds [`Mix::Begin`], the actions of the first branch, [`Mix::Add`], the
//! actions of the second branch, [`Mix::Add`], and so on. Each action of a branch receives the
//! output of the action before it.

use serde_json::{Value, json};

use crate::error::DataError;
use crate::geometry::Roi;
use crate::image::{HostImage, Image};

use super::{ActionKind, ActionParams, Execution, Executor, Facts, ParamBytes};

pub use self::Mix as Params;

/// Facts about mixes. They run only on the CPU, because no kernel implements them.
pub static FACTS: Facts = Facts::new::<Mix>(Execution::Mix);

/// An action of a mix: its beginning, or the end of one of its branches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Starts the sum with the image, which is also the input of the first branch.
    Begin {
        /// Weight of the image in the sum.
        weight: f32,
        /// Window that the sum covers.
        window: Roi,
    },
    /// Adds the result of a branch to the sum.
    Add {
        /// Weight of the result in the sum.
        weight: f32,
        /// Whether this is the last branch of the mix. After the last branch, the next action
        /// receives the sum. After an earlier branch, the next action receives the image at `Begin`
        /// again.
        last: bool,
    },
}

impl ActionKind for Mix {
    // `demand` keeps its default, because `Branches` computes the windows of all actions of a mix
    // together.

    fn executor(&self) -> Executor<'_> {
        Executor::Mix(self)
    }

    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, mixer: &mut Mixer) {
        mixer.take(*self, src, out).expect("a reference may allocate");
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        ParamBytes::new(&[0u64; 0])
    }

    /// Returns the weight of the action and its place in the mix, by name. The place `begin` has
    /// the weight of the image. The places `next` and `end` have the weight of the branch that ends
    /// there.
    fn named(&self) -> (&'static str, Option<Value>) {
        let (weight, at) = match *self {
            Mix::Begin { weight, .. } => (weight, "begin"),
            Mix::Add { weight, last: false } => (weight, "next"),
            Mix::Add { weight, last: true } => (weight, "end"),
        };
        ("mix", Some(json!({ "weight": weight, "at": at })))
    }
}

/// Tracks whether an action is inside a mix while a list of actions is passed in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inside(bool);

impl Inside {
    /// Goes on to the next action of the list. Returns whether this action belongs to a mix.
    pub fn pass(&mut self, params: &ActionParams) -> bool {
        if let ActionParams::Mix(mix) = params {
            self.0 = !matches!(mix, Mix::Add { last: true, .. });
            return true;
        }
        self.0
    }
}

/// Windows of the images of a mix. A backward pass, which begins at the end of the mix, computes
/// them.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Window that the sum covers.
    sum: Roi,
    /// Window of the mix's input image: the union of the windows that the sum and the branches need
    /// which the backward pass has visited. It may grow with each further branch.
    begin: Roi,
}

/// Windows of the mix that contains the current action of a backward pass. `None` outside of mixes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Branches(Option<Windows>);

impl Branches {
    /// Handles one action of a backward pass. `window` is the window that is needed of the image
    /// after the action. Returns the window that the action must output. The two windows differ
    /// only for actions of a mix.
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

    /// Sets the output window of each [`Mix::Add`] that is not the last of its mix. The output of
    /// such an action is the image at `Begin`, so it has the window of that image. `actions` are
    /// all actions in order, with their output windows.
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

/// Image at the beginning of a mix, and the weighted sum of its branches. The memory is reused for
/// the next sample.
#[derive(Clone, Debug, Default)]
pub struct Mixer {
    image: Image<u8>,
    sum: Image<f32>,
}

impl Mixer {
    /// Executes one action of a mix on the image `src` and writes the next image to `out`, within
    /// the window that `out` has. `Begin` stores the image and starts the weighted sum. `Add` adds
    /// `src` to the sum. After the last `Add`, the next image is the sum. After an earlier `Add`,
    /// the next image is the image that `Begin` stored.
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
                                // Truncates like torchvision.
                                *byte = *sum as u8;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Memory that the mixer holds, in bytes.
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

/// Copies the window of `out` from `src`, which contains this window.
fn copy(src: &Image<u8>, out: &mut Image<u8>) {
    let window = out.window();
    for y in window.y..window.bottom() {
        out.row_mut(y).copy_from_slice(columns(src, window, y));
    }
}

/// Values of row `y` in the columns of `window`. The image must contain these columns.
fn columns<T: Copy + Default>(image: &Image<T>, window: Roi, y: u32) -> &[T] {
    let first = 3 * (window.x - image.window().x) as usize;
    &image.row(y)[first..][..3 * window.width as usize]
}
