//! Images with an alpha channel: a pair of an image of the colours and an image of alpha, which has
//! three equal channels. All actions are executed on both images, one action per pass.
//!
//! As in Pillow, colours are multiplied by alpha before an action that computes weighted sums of
//! neighbouring pixels, and divided by it afterwards. So the colours of transparent pixels do not
//! blend into their neighbours. Pillow defines this for 8 bits only. Images of 16 bits and of
//! floats follow the same rule without rounding.

use super::HostTransform;
use super::host::Rest;
use super::upright::Upright;
use crate::decode::Decoders;
use crate::error::DataError;
use crate::geometry::Roi;
use crate::image::{HostImage, Image, PixelFormat};
use crate::op::Actions;
use crate::output;
use crate::plan::SamplePlan;
use crate::tensor::CHANNELS;

use super::PlannedImage;

impl HostTransform {
    /// Decodes an image with alpha and runs the first `operators` operators. Stores the tensor if
    /// `out` is given.
    pub(super) fn execute_with_alpha(
        &mut self,
        encoded: PlannedImage<'_>,
        decoder: &mut Decoders,
        operators: usize,
        out: Option<&mut [u8]>,
    ) -> Result<(), DataError> {
        self.decode_with_alpha(encoded, decoder)?;
        let (format, actions) = (encoded.plan.pixel_format(), &encoded.sample.actions);
        self.timed(|this| this.finish_with_alpha(format, actions, operators, out))
    }

    /// Runs operators on the image and the alpha channel of `from`, and stores the sample's tensor
    /// in `out`.
    pub(super) fn run_with_alpha(
        &mut self,
        actions: &Actions,
        operators: usize,
        from: &HostTransform,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let Some(of_alpha) = &from.alpha else { unreachable!("the image has alpha") };
        let (colours, alpha, format) = (from.image(), of_alpha.image(), actions.format);
        let window = actions.list.first().map_or(colours.window(), |first| first.input);
        self.images.begin();
        let mine = self.of_alpha();
        mine.images.begin();
        mine.put_part(alpha, window)?;
        self.put_part(colours, window)?;
        self.finish_with_alpha(format, actions, operators, Some(out))
    }

    /// The transform of the alpha channel.
    fn of_alpha(&mut self) -> &mut HostTransform {
        let shape = self.passes.shape();
        self.alpha.get_or_insert_with(|| Box::new(HostTransform::of_shape(shape)))
    }

    /// Copies a part of an image to the current image.
    fn put_part(&mut self, image: &HostImage, window: Roi) -> Result<(), DataError> {
        let mut copy = self.images.next(image.pixels(), window)?;
        match (image, &mut copy) {
            (HostImage::U8(image), HostImage::U8(copy)) => copy_part(image, copy),
            (HostImage::F32(image), HostImage::F32(copy)) => copy_part(image, copy),
            _ => unreachable!("both images have the same type"),
        }
        self.images.advance(copy);
        Ok(())
    }

    /// Decodes the window of an image and its alpha channel, and stores both upright.
    fn decode_with_alpha(
        &mut self,
        PlannedImage { bytes, header, plan, sample }: PlannedImage<'_>,
        decoder: &mut Decoders,
    ) -> Result<(), DataError> {
        let SamplePlan { orientation, stored, stored_window, reduction, .. } = *sample;
        let turn = Upright { orientation, stored, first_column: stored_window.x };
        let format = plan.pixel_format();
        let of_alpha = self.of_alpha();
        of_alpha.images.begin();
        let mut alpha = of_alpha.images.next(format.pixel_type(), sample.window)?;
        let mut colours = self.images.next(format.pixel_type(), sample.window)?;
        let decoded = match (&mut colours, &mut alpha) {
            (HostImage::U8(colours), HostImage::U8(alpha)) => {
                let part = (stored_window, reduction);
                decoder.decode_with_alpha(bytes, header, part, &mut |layout, rows| {
                    turn.store_with_alpha(layout, rows, colours, alpha);
                })
            }
            (HostImage::F32(colours), HostImage::F32(alpha)) => {
                decoder.decode_floats(bytes, header, format, stored_window, &mut |part| {
                    turn.store_floats(part, colours);
                    turn.store_alpha_of_floats(part, alpha);
                })
            }
            _ => unreachable!("both images have the same type"),
        };
        self.images.advance(colours);
        self.of_alpha().images.advance(alpha);
        decoded
    }

    /// Runs the actions of the first `operators` operators on the current images, and stores the
    /// tensor if `out` is given.
    fn finish_with_alpha(
        &mut self,
        format: PixelFormat,
        actions: &Actions,
        operators: usize,
        out: Option<&mut [u8]>,
    ) -> Result<(), DataError> {
        for place in 0..actions.end(operators) {
            let Some(of_alpha) = &actions.alpha else {
                unreachable!("the plan drew these actions")
            };
            let premultiplies = actions.list[place].premultiplies();
            if premultiplies {
                self.change_colours(premultiplied, |value, alpha| value * (alpha / format.scale()));
            }
            let (end, is_across) = (place + 1, false);
            self.finish(Rest { actions, place, end, is_across }, None)?;
            self.of_alpha().finish(Rest { actions: of_alpha, place, end, is_across }, None)?;
            if premultiplies {
                self.change_colours(divided, |value, alpha| divided_float(value, alpha, format));
            }
        }
        if let Some(out) = out {
            let shape = self.passes.shape();
            output::store_channels(self.images.current(), shape, 0..CHANNELS, out);
            let alpha = self.of_alpha().images.current();
            output::store_channels(alpha, shape, CHANNELS..CHANNELS + 1, out);
        }
        Ok(())
    }

    /// Changes each value of the colours by one of these functions, which also receives alpha.
    fn change_colours(&mut self, bytes: fn(u8, u8) -> u8, floats: impl Fn(f32, f32) -> f32) {
        let Self { images, alpha, .. } = self;
        let alpha = alpha.as_ref().map(|it| it.images.current());
        match (images.current_mut(), alpha) {
            (HostImage::U8(colours), Some(HostImage::U8(alpha))) => change(colours, alpha, bytes),
            (HostImage::F32(colours), Some(HostImage::F32(alpha))) => {
                change(colours, alpha, floats);
            }
            _ => unreachable!("both images have the same type"),
        }
    }
}

fn change<T: Copy + Default>(colours: &mut Image<T>, alpha: &Image<T>, change: impl Fn(T, T) -> T) {
    for (value, alpha) in colours.data_mut().iter_mut().zip(alpha.data()) {
        *value = change(*value, *alpha);
    }
}

/// Copies the window of `copy`, which is a part of `image`.
fn copy_part<T: Copy + Default>(image: &Image<T>, copy: &mut Image<T>) {
    let window = copy.window();
    let first = CHANNELS * (window.x - image.window().x) as usize;
    for y in window.y..window.bottom() {
        let row = copy.row_mut(y);
        row.copy_from_slice(&image.row(y)[first..][..row.len()]);
    }
}

/// Product of a colour and alpha (`MULDIV255` of Pillow's `Convert.c`).
fn premultiplied(value: u8, alpha: u8) -> u8 {
    let product = u32::from(value) * u32::from(alpha) + 128;
    (((product >> 8) + product) >> 8) as u8
}

/// Quotient of a premultiplied colour and alpha (`rgbA2rgba` of Pillow's `Convert.c`).
fn divided(value: u8, alpha: u8) -> u8 {
    match alpha {
        0 | 255 => value,
        _ => (255 * u32::from(value) / u32::from(alpha)).min(255) as u8,
    }
}

/// Quotient of a premultiplied colour of 16 bits or of floats and alpha. Of 16 bits, the rules are
/// those of [`divided`]. Alpha of floats has no maximum, so colours of any alpha but 0 are divided.
fn divided_float(value: f32, alpha: f32, format: PixelFormat) -> f32 {
    let one = format.scale();
    match format.is_16_bit() {
        true if alpha <= 0.0 || alpha >= one => value,
        true => (value / (alpha / one)).clamp(0.0, one),
        false if alpha == 0.0 => value,
        false => value / alpha,
    }
}
