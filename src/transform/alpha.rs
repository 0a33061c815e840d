//! Images with an alpha channel: a pair of an image of the colours and an image of alpha, which has
//! three equal channels. All actions are executed on both images, one action per pass.
//!
//! As in Pillow, colours are multiplied by alpha before an action that computes weighted sums of
//! neighbouring pixels, and divided by it afterwards. So the colours of transparent pixels do not
//! blend into their neighbours.

use super::HostTransform;
use super::host::Rest;
use super::upright::Upright;
use crate::decode::Decoders;
use crate::error::DataError;
use crate::geometry::Roi;
use crate::image::{HostImage, Image, PixelType};
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
        self.timed(|this| this.finish_with_alpha(&encoded.sample.actions, operators, out))
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
        let (colours, alpha) = (from.image(), of_alpha.image());
        let window = actions.list.first().map_or(colours.window(), |first| first.input);
        self.images.begin();
        let mine = self.of_alpha();
        mine.images.begin();
        mine.put_part(alpha, window)?;
        self.put_part(colours, window)?;
        self.finish_with_alpha(actions, operators, Some(out))
    }

    /// The transform of the alpha channel.
    fn of_alpha(&mut self) -> &mut HostTransform {
        let shape = self.passes.shape();
        self.alpha.get_or_insert_with(|| Box::new(HostTransform::of_shape(shape)))
    }

    /// Copies a part of an image of bytes to the current image.
    fn put_part(&mut self, image: &HostImage, window: Roi) -> Result<(), DataError> {
        let mut copy = self.images.next(PixelType::U8, window)?;
        if let (HostImage::U8(image), HostImage::U8(copy)) = (image, &mut copy) {
            let first = CHANNELS * (window.x - image.window().x) as usize;
            for y in window.y..window.bottom() {
                let row = copy.row_mut(y);
                row.copy_from_slice(&image.row(y)[first..][..row.len()]);
            }
        }
        self.images.advance(copy);
        Ok(())
    }

    /// Decodes the window of an image and its alpha channel, and stores both upright.
    fn decode_with_alpha(
        &mut self,
        PlannedImage { bytes, header, sample, .. }: PlannedImage<'_>,
        decoder: &mut Decoders,
    ) -> Result<(), DataError> {
        let SamplePlan { orientation, stored, stored_window, reduction, .. } = *sample;
        let turn = Upright { orientation, stored, first_column: stored_window.x };
        let of_alpha = self.of_alpha();
        of_alpha.images.begin();
        let mut alpha = of_alpha.images.next(PixelType::U8, sample.window)?;
        let mut colours = self.images.next(PixelType::U8, sample.window)?;
        let decoded = match (&mut colours, &mut alpha) {
            (HostImage::U8(colours), HostImage::U8(alpha)) => {
                let part = (stored_window, reduction);
                decoder.decode_with_alpha(bytes, header, part, &mut |layout, rows| {
                    turn.store_with_alpha(layout, rows, colours, alpha);
                })
            }
            _ => unreachable!("decoders give bytes"),
        };
        self.images.advance(colours);
        self.of_alpha().images.advance(alpha);
        decoded
    }

    /// Runs the actions of the first `operators` operators on the current images, and stores the
    /// tensor if `out` is given.
    fn finish_with_alpha(
        &mut self,
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
                self.change_colours(premultiplied);
            }
            let (end, is_across) = (place + 1, false);
            self.finish(Rest { actions, place, end, is_across }, None)?;
            self.of_alpha().finish(Rest { actions: of_alpha, place, end, is_across }, None)?;
            if premultiplies {
                self.change_colours(divided);
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

    /// Changes each value of the colours by `change`, which also receives alpha.
    fn change_colours(&mut self, change: fn(u8, u8) -> u8) {
        let Self { images, alpha, .. } = self;
        let alpha = alpha.as_ref().map(|it| it.images.current());
        let (HostImage::U8(colours), Some(HostImage::U8(alpha))) = (images.current_mut(), alpha)
        else {
            unreachable!("operators after normalize do not resample images with alpha")
        };
        let alpha: &Image<u8> = alpha;
        for (value, alpha) in colours.data_mut().iter_mut().zip(alpha.data()) {
            *value = change(*value, *alpha);
        }
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
